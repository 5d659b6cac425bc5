"""Where blocks of KV go that outlive the pool: memory, disk; and when they come back."""
