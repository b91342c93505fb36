"""The commands: parse, call, print. One module per command or group; what they do is in other rooms."""
