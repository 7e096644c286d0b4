"""What the package's own commands have in common: refusals, arguments, files, pictures."""
