{{/* The address of NATS. */}}
{{- define "hookstart.natsURL" -}}
{{- if .Values.nats.enabled -}}
tls://nats-0.nats:4222,tls://nats-1.nats:4222,tls://nats-2.nats:4222
{{- else -}}
{{- required "nats.url: the address of your NATS servers, as nats.enabled is false" .Values.nats.url -}}
{{- end -}}
{{- end -}}

{{/* The configuration that ingresses and executors share. */}}
{{- define "hookstart.config" -}}
HOOKSTART_NATS_URL: {{ include "hookstart.natsURL" . | quote }}
HOOKSTART_NATS_CA: /etc/hookstart/ca.crt
HOOKSTART_PUBLIC_URL: {{ .Values.publicURL | quote }}
{{- end -}}

{{/* The configuration files of NATS, as deploy/nats has them. */}}
{{- define "hookstart.natsConfig" -}}
{{- $files := dict -}}
{{- range $name := list "cluster.conf" "first-site.conf" "node.conf" "accounts.conf" "runner.conf" "runners.conf" -}}
{{- $_ := set $files $name ($.Files.Get (printf "manifests/nats/%s" $name)) -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}

{{/* Labels that every object gets. */}}
{{- define "hookstart.labels" -}}
app.kubernetes.io/part-of: hookstart
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Sets what every object has: namespace and labels. Called with a dict of root and object. */}}
{{- define "hookstart.own" -}}
{{- $metadata := .object.metadata -}}
{{- $_ := set $metadata "namespace" .root.Release.Namespace -}}
{{- $_ := set $metadata "labels" (merge (fromYaml (include "hookstart.labels" .root)) ($metadata.labels | default dict)) -}}
{{- end -}}

{{/* Changes the pods of a workload by the values of a part. Called with a dict of root, object and values. */}}
{{- define "hookstart.pods" -}}
{{- $pod := .object.spec.template -}}
{{- $values := .values -}}
{{- range $field := list "nodeSelector" "tolerations" "affinity" "priorityClassName" -}}
{{- with index $values $field -}}{{- $_ := set $pod.spec $field . -}}{{- end -}}
{{- end -}}
{{- with .root.Values.image.pullSecrets -}}{{- $_ := set $pod.spec "imagePullSecrets" . -}}{{- end -}}
{{- $container := first $pod.spec.containers -}}
{{- with $values.resources -}}{{- $_ := set $container "resources" . -}}{{- end -}}
{{- with .root.Values.image.pullPolicy -}}{{- $_ := set $container "imagePullPolicy" . -}}{{- end -}}
{{- with $values.extraArgs -}}{{- $_ := set $container "args" (concat $container.args .) -}}{{- end -}}
{{- with $values.extraEnv -}}{{- $_ := set $container "env" (concat ($container.env | default list) .) -}}{{- end -}}
{{- $annotations := merge (dict) ($values.podAnnotations | default dict) ($pod.metadata.annotations | default dict) -}}
{{- $_ := set $annotations "checksum/config" (.config | sha256sum) -}}
{{- $_ := set $pod.metadata "annotations" $annotations -}}
{{- end -}}
