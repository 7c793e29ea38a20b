"""Code that runs in confinement: the process that waits for a role, and the roles themselves."""
