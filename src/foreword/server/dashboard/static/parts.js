// The parts of TTFT in the order in which they happen, as `foreword.metrics.partition` has them.

export const PARTS = new Map([
  ["read", "the head was read → the body was read"],
  ["parse", "JSON decoded and checked"],
  ["template", "the chat template applied"],
  ["tokenise", "text turned into token ids"],
  ["handover", "on the way to the engine, and to a step that takes it at once"],
  ["kv_load", "waiting for blocks from memory or disk"],
  ["queue", "waiting for its first step"],
  ["schedule", "a step with its tokens was planned, the prefix cache looked up"],
  ["prefill", "the backend computed a chunk of its prompt"],
  ["gap", "steps without it between two of its chunks"],
  ["sample", "its first token was drawn"],
  ["decode", "more tokens, until there was text that could be shown"],
  ["detokenise", "results were taken in and turned into text"],
  ["deliver", "on the way back from the step loop"],
  ["write", "JSON made and written to the socket"],
]);

/** The class that gives a part its colour; a part that this page does not know has one too. */
export function style(part) {
  return PARTS.has(part) ? `part-${part}` : "part-other";
}
