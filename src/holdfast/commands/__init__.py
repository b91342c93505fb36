"""The commands: parse, call, print. One module per command or group; the work is done in other rooms."""
