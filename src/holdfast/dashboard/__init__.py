"""The dashboard: its built page, and what it shows that no other command does."""
