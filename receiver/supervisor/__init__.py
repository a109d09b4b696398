"""Supervisor: starts, monitors, reloads and stops intakes and store process, and serves the admin port.

machine          requirements of the machine: Linux, the engine
data_dir         data directory: locks and `receiver.json`
sockets          listening sockets, our own or systemd's, kept open while processes are replaced
certificate      last valid certificate
self_signed      `--tls-self-signed`
child            one process: start, monitoring, replacement
descriptors      file descriptors in reserve, so that a process can always be replaced
restart_history  number of unexpected exits of a process in the last minutes
budget           failed deliveries of the past hour, per drain
health           readiness checks
exposition       metrics of all processes, merged
reload           selection of the settings that a running receiver can change
admin            admin port
versions         versions of package, core and dependencies
lazy_imports     loads admin and self_signed when they are needed
run              lifecycle of the supervisor
banner           text printed at the start
summary          log line once a minute
notify           systemd notifications
"""
