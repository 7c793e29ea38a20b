"""What a person chooses before a run, a record each: workflows and limits. Forms, command lines, the API, the arena and documents read them."""
