"""Code that runs confined: the process that waits for a role, and the roles."""
