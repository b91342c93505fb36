"""Install Holdfast on a machine that is reached by ssh: wheels made of what is installed here (`bundle`), the
inspection of the other machine and its consequences (`found`), the program that installs them there
(`farside`), and the use of the user's own ssh and scp (`install`).

Imports: client.links, decoding, errors, local.
Open to other rooms: install.
"""
