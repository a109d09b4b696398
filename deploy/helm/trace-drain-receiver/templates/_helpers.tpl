{{- define "trace-drain.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "trace-drain.labels" -}}
{{ include "trace-drain.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* Names of all Secrets that pods mount, as JSON. */}}
{{- define "trace-drain.secrets" -}}
{{- $names := append .Values.secrets .Values.api.tokenSecret.name }}
{{- if eq .Values.mode "server" }}
{{- $names = append $names .Values.clickhouse.passwordSecret.name }}
{{- end }}
{{- $names | compact | uniq | toJson }}
{{- end }}

{{/* Fields of a pod, the same for the receiver and for the Jobs that empty a journal. */}}
{{- define "trace-drain.pod" -}}
automountServiceAccountToken: false
# The variables of services named trace-drain-… would be unknown settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  # Not at each start: the files of the journal and the keys stay private to the user.
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.podSpec }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Fields of a container, likewise. */}}
{{- define "trace-drain.container" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
resources: {{- toYaml .Values.resources | nindent 2 }}
env:
  - name: TRACE_DRAIN_CONFIG
    value: /etc/trace-drain/trace-drain.toml
  - name: TRACE_DRAIN_BEHIND_PROXY
    value: {{ .Values.behindProxy | quote }}
  - name: TRACE_DRAIN_LIMITS__STOP_GRACE_S
    value: {{ .Values.stopGraceSeconds | quote }}
  {{- if eq .Values.mode "server" }}
  - name: TRACE_DRAIN_STORE__URL
    value: {{ .Values.clickhouse.url | quote }}
  {{- with .Values.clickhouse.passwordSecret }}
  {{- if .name }}
  - name: TRACE_DRAIN_STORE__PASSWORD_FILE
    value: /etc/trace-drain/secrets/{{ .name }}/{{ .key }}
  {{- end }}
  {{- end }}
  {{- end }}
  {{- with .Values.api.tokenSecret }}
  {{- if .name }}
  - name: TRACE_DRAIN_API_LISTEN
    value: 0.0.0.0:8318
  - name: TRACE_DRAIN_API_TOKEN_FILE
    value: /etc/trace-drain/secrets/{{ .name }}/{{ .key }}
  - name: TRACE_DRAIN_API_HOSTS
    value: {{ concat (list $.Release.Name (printf "%s.%s" $.Release.Name $.Release.Namespace) (printf "%s.%s.svc" $.Release.Name $.Release.Namespace)) $.Values.api.hosts | join "," }}
  {{- end }}
  {{- end }}
volumeMounts:
  - name: data
    mountPath: /data
  - name: tmp
    mountPath: /tmp
  - name: config
    mountPath: /etc/trace-drain/trace-drain.toml
    subPath: trace-drain.toml
  {{- range fromJsonArray (include "trace-drain.secrets" .) }}
  - name: secret-{{ . | replace "." "-" }}
    mountPath: /etc/trace-drain/secrets/{{ . }}
    readOnly: true
  {{- end }}
{{- end }}

{{/* Volumes except the data. */}}
{{- define "trace-drain.volumes" -}}
- name: tmp
  emptyDir: {}
- name: config
  configMap:
    name: {{ .Release.Name }}
{{- range fromJsonArray (include "trace-drain.secrets" .) }}
- name: secret-{{ . | replace "." "-" }}
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end }}
