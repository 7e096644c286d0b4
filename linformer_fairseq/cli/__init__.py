"""What the package's commands share: errors, arguments, files, processes, progress and pictures."""
