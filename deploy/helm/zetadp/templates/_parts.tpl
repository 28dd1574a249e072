{{/* Names, labels, and what the pods of the API, the launcher and the workers have in common. */}}

{{- define "zetadp.name" -}}
{{- if contains "zetadp" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-zetadp" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "zetadp.selector" -}}
app.kubernetes.io/part-of: zetadp
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "zetadp.labels" -}}
{{ include "zetadp.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "zetadp.image" -}}
{{ printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) | quote }}
{{- end }}

{{- define "zetadp.environment" -}}
- {name: ZETADP_DATA_DIR, value: /data}
- {name: HOME, value: /tmp}
- name: ZETADP_DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.secrets.environment }}, key: ZETADP_DATABASE_URL}}
{{- if .Values.storage.url }}
- {name: ZETADP_STORAGE_URL, value: {{ .Values.storage.url | quote }}}
{{- with .Values.storage.endpoint }}
- {name: AWS_ENDPOINT_URL, value: {{ . | quote }}}
{{- end }}
{{- with .Values.storage.region }}
- {name: AWS_REGION, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{- if .Values.storage.dataSetsClaim }}
- {name: ZETADP_DATA_SETS_DIR, value: /data-sets}
{{- end }}
{{- range $name, $value := .Values.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "zetadp.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
# Signing keys stay their owner's alone.
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "zetadp.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "zetadp.mounts" -}}
- {name: data, mountPath: /data}
- {name: tmp, mountPath: /tmp}
{{- if .Values.storage.dataSetsClaim }}
- {name: data-sets, mountPath: /data-sets, readOnly: true}
{{- end }}
{{- end }}

{{- define "zetadp.volumes" -}}
- name: tmp
  emptyDir: {}
{{- if .Values.storage.url }}
- name: data
  emptyDir: {}
- name: signing-keys
  secret: {secretName: {{ .Values.secrets.signingKeys }}}
{{- else }}
- name: data
  persistentVolumeClaim: {claimName: {{ .Values.storage.volume.existingClaim | default (printf "%s-data" (include "zetadp.name" .)) }}}
{{- end }}
{{- if .Values.storage.dataSetsClaim }}
- name: data-sets
  persistentVolumeClaim: {claimName: {{ .Values.storage.dataSetsClaim }}, readOnly: true}
{{- end }}
{{- end }}

{{/* Where pods share no folder each copies the signing keys, which must be its own alone. */}}
{{- define "zetadp.keys" -}}
{{- if .root.Values.storage.url }}
initContainers:
  - name: signing-keys
    image: {{ include "zetadp.image" (dict "image" .image "root" .root) }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    command: [sh, -ec, "umask 077; mkdir -p /data/keys; for file in /signing-keys/*; do install -m 600 \"$file\" /data/keys/; done"]
    securityContext: {{- include "zetadp.containerSecurity" .root | nindent 6 }}
    resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 50m, memory: 32Mi}}
    volumeMounts:
      - {name: data, mountPath: /data}
      - {name: signing-keys, mountPath: /signing-keys, readOnly: true}
{{- end }}
{{- end }}

{{- define "zetadp.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* The pod of a worker, without what its Deployment or the launcher adds. */}}
{{- define "zetadp.workerSpec" -}}
{{- include "zetadp.pullSecrets" . }}
automountServiceAccountToken: false
# Without the variables of the namespace's Services, some of which would read like settings.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .Values.graceSeconds }}
securityContext: {{- include "zetadp.podSecurity" . | nindent 2 }}
{{- with .Values.worker.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.worker.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- include "zetadp.keys" (dict "root" . "image" .Values.image.worker) }}
volumes:
  - name: shared-memory
    emptyDir: {medium: Memory, sizeLimit: {{ .Values.worker.sharedMemory }}}
{{- include "zetadp.volumes" . | nindent 2 }}
{{- end }}

{{- define "zetadp.workerContainer" -}}
name: worker
image: {{ include "zetadp.image" (dict "image" .Values.image.worker "root" .) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- include "zetadp.containerSecurity" . | nindent 2 }}
env: {{- include "zetadp.environment" . | nindent 2 }}
envFrom:
  - secretRef: {name: {{ .Values.secrets.environment }}}
volumeMounts:
{{- include "zetadp.mounts" . | nindent 2 }}
  - {name: shared-memory, mountPath: /dev/shm}
{{- end }}

{{- define "zetadp.alive" -}}
startupProbe:
  exec: {command: [zetadp, alive]}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 60
livenessProbe:
  exec: {command: [zetadp, alive]}
  periodSeconds: 30
  timeoutSeconds: 10
  failureThreshold: 3
{{- end }}
