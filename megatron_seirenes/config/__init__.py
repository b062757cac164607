"""What a run is: the schema, the rules that span its keys, and reading it from YAML."""
