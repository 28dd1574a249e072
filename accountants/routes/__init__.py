"""The routes from an event to its privacy profile. Each is a folder or a file, and each is an accountant."""
