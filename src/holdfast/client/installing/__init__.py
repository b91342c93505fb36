"""Holdfast put onto a machine that is reached by ssh: wheels made of what is installed here (`bundle`), what
is found there and what follows from it (`found`), the program that installs them there (`farside`), and the
user's own ssh and scp (`install`).

Imports: client.links, decoding, errors, local.
Open to other rooms: install.
"""
