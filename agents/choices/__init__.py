"""The choices that a person makes before a run (workflows and limits), with one record per choice. Forms, command lines, the API, the arena and the
docs read them."""
