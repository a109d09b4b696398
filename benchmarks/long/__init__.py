"""What only shows after a while: growth under a steady load, and a backlog that fills the journal."""
