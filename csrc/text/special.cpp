#include <algorithm>
#include <queue>

#include "foreword/tokenizer.h"
#include "utf8.h"

namespace foreword {
namespace {

constexpr std::string_view kSpace = " \t\n\v\f\r";

}  // namespace

int32_t SpecialTokens::step(int32_t node, char byte) const {
  int32_t child = nodes_[static_cast<size_t>(node)].child;
  while (child >= 0 && nodes_[static_cast<size_t>(child)].byte != byte) child = nodes_[static_cast<size_t>(child)].sibling;
  return child;
}

void SpecialTokens::add(std::string_view text, int32_t id) {
  if (text.empty()) return;
  int32_t node = 0;
  for (const char byte : text) {
    int32_t child = step(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({byte, kNoToken, -1, nodes_[static_cast<size_t>(node)].child});
      nodes_[static_cast<size_t>(node)].child = child;
    }
    node = child;
  }
  nodes_[static_cast<size_t>(node)].token = id;
  texts_.emplace_back(text);
  longest_ = std::max(longest_, text.size());
}

// The longest token that starts at `begin` and ends by `end`.
int32_t SpecialTokens::longest_match(std::string_view text, size_t begin, size_t end, size_t& length) const {
  int32_t found = kNoToken;
  int32_t node = 0;
  for (size_t at = begin; at < end; ++at) {
    node = step(node, text[at]);
    if (node < 0) break;
    if (nodes_[static_cast<size_t>(node)].token != kNoToken) {
      found = nodes_[static_cast<size_t>(node)].token;
      length = at + 1 - begin;
    }
  }
  return found;
}

int32_t SpecialTokens::find(std::string_view text) const {
  size_t length = 0;
  const int32_t token = longest_match(text, 0, text.size(), length);
  return length == text.size() ? token : kNoToken;
}

std::vector<Piece> SpecialTokens::split(std::string_view text) const {
  struct Match {
    size_t begin, length;
    int32_t token;
    bool operator<(const Match& other) const {
      return length != other.length ? length < other.length : begin > other.begin;
    }
  };
  std::vector<Match> matches;
  size_t length = 0;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    const int32_t token = longest_match(text, begin, text.size(), length);
    if (token != kNoToken) matches.push_back({begin, length, token});
  }
  if (matches.empty()) return text.empty() ? std::vector<Piece>{} : std::vector<Piece>{{0, text.size()}};

  // Take the longest match that is left. One that runs into a taken stretch may have a shorter one to offer.
  std::vector<bool> taken(text.size(), false);
  std::vector<Piece> tokens;
  std::priority_queue<Match> queue(std::less<Match>{}, std::move(matches));
  while (!queue.empty()) {
    const Match match = queue.top();
    queue.pop();
    size_t free = match.begin;
    while (free < match.begin + match.length && !taken[free]) ++free;
    if (free == match.begin + match.length) {
      tokens.push_back({match.begin, free, match.token});
      std::fill(taken.begin() + static_cast<std::ptrdiff_t>(match.begin), taken.begin() + static_cast<std::ptrdiff_t>(free), true);
    } else if (free > match.begin) {
      const int32_t token = longest_match(text, match.begin, free, length);
      if (token != kNoToken) queue.push({match.begin, length, token});
    }
  }
  std::sort(tokens.begin(), tokens.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });

  std::vector<Piece> pieces;
  size_t end = 0;
  for (const Piece& token : tokens) {
    if (token.begin > end) pieces.push_back({end, token.begin});
    pieces.push_back(token);
    end = token.end;
  }
  if (end < text.size()) pieces.push_back({end, text.size()});
  return pieces;
}

// Whether the end of the text is the start of a token that goes on.
bool SpecialTokens::ends_with_prefix(std::string_view text) const {
  for (size_t begin = text.size() - std::min(text.size(), longest_); begin < text.size(); ++begin) {
    int32_t node = 0;
    for (size_t at = begin; at < text.size() && node >= 0; ++at) node = step(node, text[at]);
    if (node >= 0 && nodes_[static_cast<size_t>(node)].child >= 0) return true;
  }
  return false;
}

// Whether the start of the text is the end of a token, or all of it lies inside one.
bool SpecialTokens::starts_inside(std::string_view text) const {
  for (const std::string& token : texts_) {
    for (size_t at = token.find(text[0], 1); at != std::string::npos; at = token.find(text[0], at + 1)) {
      const size_t length = std::min(token.size() - at, text.size());
      if (text.substr(0, length) == std::string_view(token).substr(at, length)) return true;
    }
  }
  return false;
}

std::string SpecialTokens::protect(std::string_view text, std::string_view guard) const {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return std::string(text);
  const size_t last = text.find_last_not_of(kSpace) + 1;
  const std::string_view trimmed = text.substr(first, last - first);

  std::string out(text.substr(0, first));
  if (starts_inside(trimmed)) out.append(guard);
  size_t length = 0;
  for (size_t at = first; at < text.size();) {
    const size_t character = utf8_length(text, at);
    out.append(text.substr(at, character));
    if (longest_match(text, at, text.size(), length) != kNoToken) out.append(guard);
    at += character;
    if (at == last && (ends_with_prefix(trimmed) || ends_with_prefix(text))) out.append(guard);
  }
  return out;
}

}  // namespace foreword
