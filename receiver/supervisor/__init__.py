"""Supervisor: starts, monitors, reloads and stops intakes and store process, and serves the admin port.

data_dir         data directory: locks and `receiver.json`
sockets          listening sockets, our own or systemd's, kept open while processes are replaced, and
                 file descriptors in reserve, so that a process can always be replaced
certificate      last valid certificate
self_signed      `--tls-self-signed`
child            one process: start, monitoring, replacement
restart_history  number of unexpected exits of a process in the last minutes
budget           failed deliveries of the past hour, per drain
health           readiness checks
reload           selection of the settings that a running receiver can change
admin            admin port, and the metrics of all processes, merged
versions         versions of package, core and dependencies
run              lifecycle of the supervisor, and notifications for systemd
banner           text printed at the start
summary          log line once a minute
"""
