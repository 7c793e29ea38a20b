"""Ways in: passwords, codes, links, invitations."""
