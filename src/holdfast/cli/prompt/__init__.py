"""The durable prompt of `holdfast repl`: what is typed, what it means, and what is shown."""
