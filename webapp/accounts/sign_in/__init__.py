"""Ways to sign in: passwords, codes, links and invitations."""
