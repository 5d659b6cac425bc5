"""Load on any server that speaks OpenAI's API: what is asked, when, and what came back when."""
