{{- define "kun.labels" -}}
app.kubernetes.io/part-of: kun
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "kun.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Every container of ours, under Pod Security "restricted". */ -}}
{{- define "kun.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "kun.pod" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* Copies of a part keep to different nodes where that is possible. */ -}}
{{- define "kun.apart" -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {app.kubernetes.io/name: {{ . }}}
{{- end }}

{{- /* What the webhooks judge: neither what our controller writes itself, nor a change of what is leaving that leaves its
specification alone, such as the removal of a finalizer. */ -}}
{{- define "kun.judged" -}}
- name: not-by-our-controller
  expression: request.userInfo.username != 'system:serviceaccount:{{ .Release.Namespace }}:kun-controller'
- name: not-only-leaving
  expression: "!(oldObject != null && has(oldObject.metadata.deletionTimestamp) && has(object.spec) && has(oldObject.spec) && object.spec == oldObject.spec)"
{{- end }}
