"""The SDK: sessions that survive a lost link, processes, files, HTTP and policies on an exec server."""
