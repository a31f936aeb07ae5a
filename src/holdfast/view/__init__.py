"""How things look to people, as text: words, tables, drawings and reports, for every front end."""
