//! Pods: what is refused, what is worth a word.
use super::{POD, check};
use expect_test::expect;

#[test]
fn containers_have_names_images_and_sound_parts() {
    check(
        POD,
        &[
            "{}",
            "spec: {containers: []}",
            "spec: {containers: [{name: A_b, image: ''}]}",
            "spec: {containers: [{name: c, image: x}, {name: c, image: x}]}",
            "spec: {initContainers: [{name: c, image: x, livenessProbe: {exec: {command: [a]}}}]}",
            "spec: {ephemeralContainers: [{name: e, image: x, ports: [{containerPort: 1}]}]}",
            "spec: {containers: [{name: c, image: x, imagePullPolicy: Sometimes, terminationMessagePolicy: Maybe}]}",
            "spec: {containers: [{name: c, image: x, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]}]}",
            "spec: {containers: [{name: c, image: x, resizePolicy: [{resourceName: disk, restartPolicy: NotRequired}]}]}",
        ],
        expect![[r#"
            {}
                fine
            spec: {containers: []}
                spec.containers: Required value
            spec: {containers: [{name: A_b, image: ''}]}
                spec.containers[0].name: Invalid value: "A_b": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
                spec.containers[0].image: Required value
            spec: {containers: [{name: c, image: x}, {name: c, image: x}]}
                spec.containers[1].name: Duplicate value: "c"
            spec: {initContainers: [{name: c, image: x, livenessProbe: {exec: {command: [a]}}}]}
                spec.initContainers[0].name: Duplicate value: "c"
                spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always
            spec: {ephemeralContainers: [{name: e, image: x, ports: [{containerPort: 1}]}]}
                spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container
                spec.ephemeralContainers: Forbidden: cannot be set on create
            spec: {containers: [{name: c, image: x, imagePullPolicy: Sometimes, terminationMessagePolicy: Maybe}]}
                spec.containers[0].terminationMessagePolicy: Unsupported value: "Maybe": supported values: "File", "FallbackToLogsOnError"
                spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"
            spec: {containers: [{name: c, image: x, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]}]}
                spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used
            spec: {containers: [{name: c, image: x, resizePolicy: [{resourceName: disk, restartPolicy: NotRequired}]}]}
                spec.containers[0].resizePolicy: Unsupported value: "disk": supported values: "cpu", "memory"
        "#]],
    );
}

#[test]
fn ports_are_numbers_in_range_and_named_once() {
    check(
        POD,
        &[
            "spec: {containers: [{name: c, image: x, ports: [{containerPort: 0}]}]}",
            "spec: {containers: [{name: c, image: x, ports: [{containerPort: 70000, hostPort: -1, protocol: ICMP}]}]}",
            "spec: {containers: [{name: c, image: x, ports: [{name: a, containerPort: 1}, {name: a, containerPort: 2}]}]}",
            "spec: {containers: [{name: c, image: x, ports: [{containerPort: 1, hostPort: 5}, {containerPort: 2, hostPort: 5}]}]}",
            "spec: {hostNetwork: true, containers: [{name: c, image: x, ports: [{containerPort: 1, hostPort: 2}]}]}",
        ],
        expect![[r#"
            spec: {containers: [{name: c, image: x, ports: [{containerPort: 0}]}]}
                spec.containers[0].ports[0].containerPort: Required value
            spec: {containers: [{name: c, image: x, ports: [{containerPort: 70000, hostPort: -1, protocol: ICMP}]}]}
                spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive
                spec.containers[0].ports[0].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive
                spec.containers[0].ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"
            spec: {containers: [{name: c, image: x, ports: [{name: a, containerPort: 1}, {name: a, containerPort: 2}]}]}
                spec.containers[0].ports[1].name: Duplicate value: "a"
                warning: spec.containers[0].ports[1]: duplicate port name "a" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]
            spec: {containers: [{name: c, image: x, ports: [{containerPort: 1, hostPort: 5}, {containerPort: 2, hostPort: 5}]}]}
                spec.containers[0].ports[1].hostPort: Duplicate value: "TCP//5"
            spec: {hostNetwork: true, containers: [{name: c, image: x, ports: [{containerPort: 1, hostPort: 2}]}]}
                spec.containers[0].ports[0].hostPort: Invalid value: 2: must match `containerPort` when `hostNetwork` is true
        "#]],
    );
}

#[test]
fn variables_come_from_one_place() {
    check(
        POD,
        &[
            "spec: {containers: [{name: c, image: x, env: [{name: '', value: a}]}]}",
            "spec: {containers: [{name: c, image: x, env: [{name: A, valueFrom: {}}]}]}",
            "spec: {containers: [{name: c, image: x, env: [{name: A, value: b, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]}",
            "spec: {containers: [{name: c, image: x, env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.nowhere}}}]}]}",
            "spec: {containers: [{name: c, image: x, env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.phase}}}]}]}",
            "spec: {containers: [{name: c, image: x, env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 2}}}]}]}",
            "spec: {containers: [{name: c, image: x, env: [{name: A, valueFrom: {configMapKeyRef: {name: x, key: 'a b'}}}]}]}",
            "spec: {containers: [{name: c, image: x, envFrom: [{prefix: P}]}]}",
            "spec: {containers: [{name: c, image: x, env: [{name: A, value: a}, {name: A, value: b}]}]}",
        ],
        expect![[r#"
            spec: {containers: [{name: c, image: x, env: [{name: '', value: a}]}]}
                spec.containers[0].env[0].name: Required value
            spec: {containers: [{name: c, image: x, env: [{name: A, valueFrom: {}}]}]}
                spec.containers[0].env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`
            spec: {containers: [{name: c, image: x, env: [{name: A, value: b, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]}
                spec.containers[0].env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty
            spec: {containers: [{name: c, image: x, env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.nowhere}}}]}]}
                spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.nowhere": error converting fieldPath: field label not supported: spec.nowhere
            spec: {containers: [{name: c, image: x, env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.phase}}}]}]}
                spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "status.phase": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"
            spec: {containers: [{name: c, image: x, env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 2}}}]}]}
                spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor's values 1m and 1 are supported with the cpu resource
            spec: {containers: [{name: c, image: x, env: [{name: A, valueFrom: {configMapKeyRef: {name: x, key: 'a b'}}}]}]}
                spec.containers[0].env[0].valueFrom.configMapKeyRef.key: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')
            spec: {containers: [{name: c, image: x, envFrom: [{prefix: P}]}]}
                spec.containers[0].envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`
            spec: {containers: [{name: c, image: x, env: [{name: A, value: a}, {name: A, value: b}]}]}
                warning: spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply
        "#]],
    );
}

#[test]
fn volumes_have_one_source_and_mounts_find_them() {
    check(
        POD,
        &[
            "spec: {volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}]}",
            "spec: {volumes: [{name: V_1, hostPath: {path: ../x}}]}",
            "spec: {volumes: [{name: v, configMap: {items: [{key: '', path: /abs}]}}]}",
            "spec: {volumes: [{name: v, projected: {sources: [{secret: {name: a, items: [{key: k, path: p}]}}, {configMap: {name: b, items: [{key: k, path: p}]}}]}}]}",
            "spec: {volumes: [{name: v, iscsi: {targetPortal: 1.2.3.4, iqn: iqn, lun: 256}}]}",
            "spec: {volumes: [{name: v, ephemeral: {}}]}",
            "spec: {volumes: [{name: v, gitRepo: {repository: r}}]}",
            "spec: {containers: [{name: c, image: x, volumeMounts: [{name: v, mountPath: /v}]}]}",
            "spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: x, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a, mountPropagation: Bidirectional}]}]}",
            "spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: x, volumeDevices: [{name: v, devicePath: /dev/x}]}]}",
        ],
        expect![[r#"
            spec: {volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}]}
                spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type
            spec: {volumes: [{name: V_1, hostPath: {path: ../x}}]}
                spec.volumes[0].hostPath.path: Invalid value: "../x": must not contain '..'
                spec.volumes[0].name: Invalid value: "V_1": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            spec: {volumes: [{name: v, configMap: {items: [{key: '', path: /abs}]}}]}
                spec.volumes[0].configMap.name: Required value
                spec.volumes[0].configMap.items[0].key: Required value
                spec.volumes[0].configMap.items[0].path: Invalid value: "/abs": must be a relative path
            spec: {volumes: [{name: v, projected: {sources: [{secret: {name: a, items: [{key: k, path: p}]}}, {configMap: {name: b, items: [{key: k, path: p}]}}]}}]}
                spec.volumes[0].projected: Invalid value: "b": conflicting duplicate paths
                warning: volume "v" (Projected): overlapping paths: "p" (ConfigMap "b") with "p" (Secret "a")
            spec: {volumes: [{name: v, iscsi: {targetPortal: 1.2.3.4, iqn: iqn, lun: 256}}]}
                spec.volumes[0].iscsi.iqn: Invalid value: "iqn": must be valid format
                spec.volumes[0].iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive
            spec: {volumes: [{name: v, ephemeral: {}}]}
                spec.volumes[0].ephemeral.volumeClaimTemplate: Required value
            spec: {volumes: [{name: v, gitRepo: {repository: r}}]}
                warning: spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+
            spec: {containers: [{name: c, image: x, volumeMounts: [{name: v, mountPath: /v}]}]}
                spec.containers[0].volumeMounts[0].name: Not found: "v"
            spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: x, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a, mountPropagation: Bidirectional}]}]}
                spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique
                spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers
            spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: x, volumeDevices: [{name: v, devicePath: /dev/x}]}]}
                spec.containers[0].volumeDevices[0].name: Invalid value: "v": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode
        "#]],
    );
}

#[test]
fn probes_act_in_one_way() {
    check(
        POD,
        &[
            "spec: {containers: [{name: c, image: x, livenessProbe: {}}]}",
            "spec: {containers: [{name: c, image: x, livenessProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}}]}",
            "spec: {containers: [{name: c, image: x, livenessProbe: {httpGet: {port: 0, scheme: FTP}, successThreshold: 2, periodSeconds: -1}}]}",
            "spec: {containers: [{name: c, image: x, readinessProbe: {grpc: {port: 5}, terminationGracePeriodSeconds: 3}}]}",
            "spec: {containers: [{name: c, image: x, lifecycle: {preStop: {sleep: {seconds: 60}}}}]}",
        ],
        expect![[r#"
            spec: {containers: [{name: c, image: x, livenessProbe: {}}]}
                spec.containers[0].livenessProbe: Required value: must specify a handler type
            spec: {containers: [{name: c, image: x, livenessProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}}]}
                spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type
            spec: {containers: [{name: c, image: x, livenessProbe: {httpGet: {port: 0, scheme: FTP}, successThreshold: 2, periodSeconds: -1}}]}
                spec.containers[0].livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive
                spec.containers[0].livenessProbe.httpGet.scheme: Unsupported value: "FTP": supported values: "HTTP", "HTTPS"
                spec.containers[0].livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0
                spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1
            spec: {containers: [{name: c, image: x, readinessProbe: {grpc: {port: 5}, terminationGracePeriodSeconds: 3}}]}
                spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 3: must not be set for readinessProbes
            spec: {containers: [{name: c, image: x, lifecycle: {preStop: {sleep: {seconds: 60}}}}]}
                spec.containers[0].lifecycle.preStop.sleep: Invalid value: 60: must be non-negative and less than terminationGracePeriodSeconds (30)
        "#]],
    );
}

#[test]
fn requests_stay_below_limits() {
    check(
        POD,
        &[
            "spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}",
            "spec: {containers: [{name: c, image: x, resources: {requests: {example.com/gpu: 1}}}]}",
            "spec: {containers: [{name: c, image: x, resources: {limits: {disk: 1}}}]}",
            "spec: {containers: [{name: c, image: x, resources: {limits: {cpu: -1, example.com/gpu: 1500m}}}]}",
            "spec: {containers: [{name: c, image: x, resources: {limits: {hugepages-2Mi: 3Mi}}}]}",
            "spec: {containers: [{name: c, image: x, resources: {claims: [{name: r}]}}]}",
            "spec: {resources: {limits: {cpu: 1}}, containers: [{name: c, image: x, resources: {limits: {cpu: 2}}}]}",
            "spec: {containers: [{name: c, image: x, resources: {limits: {memory: 100m}}}]}",
        ],
        expect![[r#"
            spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]}
                spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1
            spec: {containers: [{name: c, image: x, resources: {requests: {example.com/gpu: 1}}}]}
                spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources
            spec: {containers: [{name: c, image: x, resources: {limits: {disk: 1}}}]}
                spec.containers[0].resources.limits[disk]: Invalid value: "disk": must be a standard resource type or fully qualified
                spec.containers[0].resources.limits[disk]: Invalid value: "disk": must be a standard resource for containers
                spec.containers[0].resources.requests[disk]: Invalid value: "disk": must be a standard resource type or fully qualified
                spec.containers[0].resources.requests[disk]: Invalid value: "disk": must be a standard resource for containers
            spec: {containers: [{name: c, image: x, resources: {limits: {cpu: -1, example.com/gpu: 1500m}}}]}
                spec.containers[0].resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0
                spec.containers[0].resources.limits[example.com/gpu]: Invalid value: "1500m": must be an integer
                spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0
                spec.containers[0].resources.requests[example.com/gpu]: Invalid value: "1500m": must be an integer
            spec: {containers: [{name: c, image: x, resources: {limits: {hugepages-2Mi: 3Mi}}}]}
                spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi
                spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi
                spec.containers[0].resources: Forbidden: HugePages require cpu or memory
            spec: {containers: [{name: c, image: x, resources: {claims: [{name: r}]}}]}
                spec.containers[0].resources.claims[0]: Not found: "r": must be one of the names in pod.spec.resourceClaims which is empty
            spec: {resources: {limits: {cpu: 1}}, containers: [{name: c, image: x, resources: {limits: {cpu: 2}}}]}
                spec.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1
                spec.resources.containers[0][cpu].limits: Invalid value: "2": must be less than or equal to pod limits of 1
            spec: {containers: [{name: c, image: x, resources: {limits: {memory: 100m}}}]}
                warning: spec.containers[0].resources.limits[memory]: fractional byte value "100m" is invalid, must be an integer
                warning: spec.containers[0].resources.requests[memory]: fractional byte value "100m" is invalid, must be an integer
        "#]],
    );
}

#[test]
fn security_contexts() {
    check(
        POD,
        &[
            "spec: {securityContext: {runAsUser: -1, supplementalGroups: [-5], sysctls: [{name: a..b, value: x}]}}",
            "spec: {securityContext: {seccompProfile: {type: Localhost}}}",
            "spec: {securityContext: {seccompProfile: {type: Unconfined, localhostProfile: p}}}",
            "spec: {containers: [{name: c, image: x, securityContext: {privileged: true, allowPrivilegeEscalation: false, procMount: Half}}]}",
            "spec: {containers: [{name: c, image: x, securityContext: {appArmorProfile: {type: Localhost}}}]}",
            "spec: {hostUsers: false, hostPID: true}",
            "spec: {os: {name: windows}, securityContext: {runAsUser: 1}}",
            "spec: {os: {name: plan9}}",
        ],
        expect![[r#"
            spec: {securityContext: {runAsUser: -1, supplementalGroups: [-5], sysctls: [{name: a..b, value: x}]}}
                spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive
                spec.securityContext.supplementalGroups[0]: Invalid value: -5: must be between 0 and 2147483647, inclusive
                spec.securityContext.sysctls[0].name: Invalid value: "a..b": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$
            spec: {securityContext: {seccompProfile: {type: Localhost}}}
                spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost
            spec: {securityContext: {seccompProfile: {type: Unconfined, localhostProfile: p}}}
                spec.securityContext.seccompProfile.localhostProfile: Invalid value: {"Type":"Unconfined","LocalhostProfile":"p"}: can only be set when seccomp type is Localhost
            spec: {containers: [{name: c, image: x, securityContext: {privileged: true, allowPrivilegeEscalation: false, procMount: Half}}]}
                spec.containers[0].securityContext.procMount: Unsupported value: "Half": supported values: "Default", "Unmasked"
                spec.containers[0].securityContext: Invalid value: {"Capabilities":null,"Privileged":true,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,"AllowPrivilegeEscalation":false,"ProcMount":"Half","SeccompProfile":null,"AppArmorProfile":null}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true
            spec: {containers: [{name: c, image: x, securityContext: {appArmorProfile: {type: Localhost}}}]}
                spec.containers[0].securityContext.appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost
            spec: {hostUsers: false, hostPID: true}
                spec.HostPID: Forbidden: when `hostUsers` is false
            spec: {os: {name: windows}, securityContext: {runAsUser: 1}}
                spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod
            spec: {os: {name: plan9}}
                spec.os: Unsupported value: "plan9": supported values: "linux", "windows"
        "#]],
    );
}

#[test]
fn where_a_pod_may_run() {
    check(
        POD,
        &[
            "spec: {nodeSelector: {'bad key': v}}",
            "spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}]}]}}}}",
            "spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, preference: {}}]}}}",
            "spec: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: ''}]}}}",
            "spec: {tolerations: [{operator: Equal}, {key: a, operator: Exists, value: b}, {key: a, effect: Never, tolerationSeconds: 1}]}",
            "spec: {topologySpreadConstraints: [{maxSkew: 0, topologyKey: '', whenUnsatisfiable: Never}]}",
            "spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: ScheduleAnyway, minDomains: 2}]}",
            "spec: {nodeName: node, schedulingGates: [{name: a}]}",
            "spec: {nodeSelector: {beta.kubernetes.io/os: linux}}",
        ],
        expect![[r#"
            spec: {nodeSelector: {'bad key': v}}
                spec.nodeSelector: Invalid value: "bad key": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}]}]}}}}
                spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
            spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, preference: {}}]}}}
                spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100
            spec: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: ''}]}}}
                spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value: can not be empty
                spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: "": name part must be non-empty
                spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
                warning: spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod
            spec: {tolerations: [{operator: Equal}, {key: a, operator: Exists, value: b}, {key: a, effect: Never, tolerationSeconds: 1}]}
                spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys"
                spec.tolerations[1].operator: Invalid value: "b": value must be empty when `operator` is 'Exists'
                spec.tolerations[2].effect: Invalid value: "Never": effect must be 'NoExecute' when `tolerationSeconds` is set
                spec.tolerations[2].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"
            spec: {topologySpreadConstraints: [{maxSkew: 0, topologyKey: '', whenUnsatisfiable: Never}]}
                spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero
                spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty
                spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Never": supported values: "DoNotSchedule", "ScheduleAnyway"
                warning: spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod
            spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: ScheduleAnyway, minDomains: 2}]}
                spec.topologySpreadConstraints[0].minDomains: Invalid value: 2: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway
                warning: spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod
            spec: {nodeName: node, schedulingGates: [{name: a}]}
                spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared
            spec: {nodeSelector: {beta.kubernetes.io/os: linux}}
                warning: spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead
        "#]],
    );
}

#[test]
fn the_rest_of_the_spec() {
    check(
        POD,
        &[
            "spec: {restartPolicy: Sometimes, dnsPolicy: Mine}",
            "spec: {dnsPolicy: None}",
            "spec: {dnsConfig: {nameservers: [1.2.3.4.5], searches: ['bad domain']}}",
            "spec: {activeDeadlineSeconds: 0, hostname: A_B, hostAliases: [{ip: x}]}",
            "spec: {preemptionPolicy: Perhaps, runtimeClassName: A_B, priorityClassName: A_B}",
            "spec: {readinessGates: [{conditionType: 'a b'}], resourceClaims: [{name: a}]}",
            "metadata: {annotations: {controller.kubernetes.io/pod-deletion-cost: many}}",
            "metadata: {name: a.b}",
        ],
        expect![[r#"
            spec: {restartPolicy: Sometimes, dnsPolicy: Mine}
                spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"
                spec.dnsPolicy: Unsupported value: "Mine": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"
            spec: {dnsPolicy: None}
                spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None
            spec: {dnsConfig: {nameservers: [1.2.3.4.5], searches: ['bad domain']}}
                spec.dnsConfig.nameservers[0]: Invalid value: "1.2.3.4.5": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
                spec.dnsConfig.searches[0]: Invalid value: "bad domain": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')
            spec: {activeDeadlineSeconds: 0, hostname: A_B, hostAliases: [{ip: x}]}
                spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive
                spec.hostname: Invalid value: "A_B": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
                spec.hostAliases[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
            spec: {preemptionPolicy: Perhaps, runtimeClassName: A_B, priorityClassName: A_B}
                spec.priorityClassName: Invalid value: "A_B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
                spec.runtimeClassName: Invalid value: "A_B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
                spec.preemptionPolicy: Unsupported value: "Perhaps": supported values: "PreemptLowerPriority", "Never"
            spec: {readinessGates: [{conditionType: 'a b'}], resourceClaims: [{name: a}]}
                spec.resourceClaims[0]: Invalid value: {"Name":"a","ResourceClaimName":null,"ResourceClaimTemplateName":null}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`
                spec.readinessGates[0].conditionType: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            metadata: {annotations: {controller.kubernetes.io/pod-deletion-cost: many}}
                metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "many": must be a 32bit integer
            metadata: {name: a.b}
                warning: metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]
        "#]],
    );
}
