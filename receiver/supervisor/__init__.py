"""The supervisor: starts, watches, reloads and stops the two kinds of process, and serves the admin port.

machine       what must be there before anything starts: Linux, the engine
data_dir      the directory, its locks, and `receiver.json`
sockets       listening sockets, our own or systemd's, held open while processes are replaced
certificate   the last good one
self_signed   `--tls-self-signed`
child         one process: started, watched, replaced
descriptors   file descriptors in reserve, so that a process can always be replaced
ends          how often a process ended by itself lately
health        what the admin port says
exposition    the counts of all processes as one
reload        which new settings a running receiver takes over
admin         the admin port
versions      what runs here
late          loads admin and self_signed when they are needed
run           all of it, in order
welcome       what is printed at the start
summary       the line that is logged once a minute
notify        what systemd is told
"""
