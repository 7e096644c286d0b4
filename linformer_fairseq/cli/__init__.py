"""What the package's commands and scripts share: errors, arguments, files, progress and tables."""
