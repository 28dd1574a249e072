"""The routes from an event to its privacy profile: each a folder or a file, each an accountant by itself."""
