"""Read and edit source: names, unread lines, comments, imports, layout."""
