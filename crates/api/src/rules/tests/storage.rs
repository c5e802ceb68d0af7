//! Volumes, claims, classes; and what else is mounted.
use super::check;
use expect_test::expect;

const VOLUME: &str = "
apiVersion: v1
kind: PersistentVolume
metadata: {name: a}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /x}}";
const CLAIM: &str = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: a, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}";
const CLASS: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: a}
provisioner: a.b/c";
const DRIVER: &str = "
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: a.b}
spec: {}";
const SECRET: &str = "
apiVersion: v1
kind: Secret
metadata: {name: a, namespace: default}
data: {k: YQ==}";
const CONFIG_MAP: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: default}
data: {k: v}";

#[test]
fn volumes() {
    check(
        VOLUME,
        &[
            "{}",
            "spec: {capacity: {cpu: 1}, accessModes: [Sometimes]}",
            "spec: {capacity: {storage: -1}}",
            "spec: {hostPath: null}",
            "spec: {hostPath: null, local: {path: ../x}}",
            "spec: {nfs: {server: s, path: x}}",
            "spec: {hostPath: null, csi: {driver: 'a b', controllerPublishSecretRef: {name: s}}}",
            "spec: {accessModes: [ReadWriteOncePod, ReadOnlyMany]}",
            "spec: {persistentVolumeReclaimPolicy: Recycle, hostPath: {path: /}}",
            "spec: {volumeAttributesClassName: ''}",
        ],
        expect![[r#"
            {}
                fine
            spec: {capacity: {cpu: 1}, accessModes: [Sometimes]}
                spec.accessModes: Unsupported value: "Sometimes": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"
                spec.capacity: Unsupported value: {"cpu":"1","storage":"1Gi"}: supported values: "storage"
            spec: {capacity: {storage: -1}}
                spec.capacity[storage]: Invalid value: -1: must be a valid resource quantity
                spec.capacity[storage]: Invalid value: "-1": must be greater than zero
            spec: {hostPath: null}
                spec: Required value: must specify a volume type
            spec: {hostPath: null, local: {path: ../x}}
                spec.local.path: Invalid value: "../x": must not contain '..'
                spec.nodeAffinity: Required value: Local volume requires node affinity
            spec: {nfs: {server: s, path: x}}
                spec.nfs: Forbidden: may not specify more than 1 volume type
            spec: {hostPath: null, csi: {driver: 'a b', controllerPublishSecretRef: {name: s}}}
                spec.csi.driver: Invalid value: "a b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
                spec.csi.volumeHandle: Required value
                spec.csi.controllerPublishSecretRef.namespace: Required value
            spec: {accessModes: [ReadWriteOncePod, ReadOnlyMany]}
                spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes
            spec: {persistentVolumeReclaimPolicy: Recycle, hostPath: {path: /}}
                spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'
                warning: spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.
            spec: {volumeAttributesClassName: ''}
                spec.volumeAttributesClassName: Required value: an empty string is disallowed
                spec.csi: Required value: has to be specified when using volumeAttributesClassName
        "#]],
    );
}

#[test]
fn claims() {
    check(
        CLAIM,
        &[
            "{}",
            "spec: {accessModes: []}",
            "spec: {resources: {requests: {storage: 0}}}",
            "spec: {storageClassName: A_B, volumeMode: Tape}",
            "spec: {dataSource: {kind: Thing, name: x}}",
            "spec: {dataSourceRef: {kind: Thing, name: x}}",
            "spec: {resources: {requests: {storage: 1500m}}}",
        ],
        expect![[r#"
            {}
                fine
            spec: {accessModes: []}
                spec.accessModes: Required value: at least 1 access mode is required
            spec: {resources: {requests: {storage: 0}}}
                spec.resources[storage]: Invalid value: "0": must be greater than zero
            spec: {storageClassName: A_B, volumeMode: Tape}
                spec.storageClassName: Invalid value: "A_B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
                spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"
            spec: {dataSource: {kind: Thing, name: x}}
                fine
            spec: {dataSourceRef: {kind: Thing, name: x}}
                spec.dataSource: Invalid value: "Thing": must be 'PersistentVolumeClaim' when referencing the default apiGroup
                spec.dataSourceRef: Invalid value: "Thing": must be 'PersistentVolumeClaim' when referencing the default apiGroup
            spec: {resources: {requests: {storage: 1500m}}}
                warning: spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer
        "#]],
    );
}

#[test]
fn classes_and_drivers() {
    check(
        CLASS,
        &[
            "{}",
            "provisioner: ''",
            "reclaimPolicy: Recycle",
            "volumeBindingMode: Late",
            "allowedTopologies: [{matchLabelExpressions: [{key: z, values: [a, a]}]}]",
        ],
        expect![[r#"
            {}
                fine
            provisioner: ''
                provisioner: Required value
            reclaimPolicy: Recycle
                reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"
            volumeBindingMode: Late
                volumeBindingMode: Unsupported value: "Late": supported values: "Immediate", "WaitForFirstConsumer"
            allowedTopologies: [{matchLabelExpressions: [{key: z, values: [a, a]}]}]
                allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "a"
        "#]],
    );
    check(
        DRIVER,
        &[
            "{}",
            "spec: {fsGroupPolicy: Some, volumeLifecycleModes: [Short]}",
            "spec: {tokenRequests: [{audience: a, expirationSeconds: 5}, {audience: a}]}",
            "spec: {serviceAccountTokenInSecrets: true}",
        ],
        expect![[r#"
            {}
                fine
            spec: {fsGroupPolicy: Some, volumeLifecycleModes: [Short]}
                spec.fsGroupPolicy: Unsupported value: "Some": supported values: "File", "None", "ReadWriteOnceWithFSType"
                spec.volumeLifecycleModes: Unsupported value: "Short": supported values: "Persistent", "Ephemeral"
            spec: {tokenRequests: [{audience: a, expirationSeconds: 5}, {audience: a}]}
                spec.tokenRequests[0].expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes
                spec.tokenRequests[1].audience: Duplicate value: "a"
                warning: spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes
            spec: {serviceAccountTokenInSecrets: true}
                spec.serviceAccountTokenInSecrets: Invalid value: true: serviceAccountTokenInSecrets is set but no tokenRequests are specified
        "#]],
    );
}

#[test]
fn secrets() {
    check(
        SECRET,
        &[
            "{}",
            "data: {'a/b': YQ==}",
            "type: kubernetes.io/tls",
            "type: kubernetes.io/basic-auth",
            "type: kubernetes.io/service-account-token",
            "{type: kubernetes.io/dockerconfigjson, data: {.dockerconfigjson: YQ==}}",
            "stringData: {t: text}",
        ],
        expect![[r#"
            {}
                fine
            data: {'a/b': YQ==}
                data[a/b]: Invalid value: "a/b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')
            type: kubernetes.io/tls
                data[tls.crt]: Required value
                data[tls.key]: Required value
                warning: tls: failed to find any PEM data in certificate input
            type: kubernetes.io/basic-auth
                data[username]: Required value
                data[password]: Required value
            type: kubernetes.io/service-account-token
                metadata.annotations[kubernetes.io/service-account.name]: Required value
            {type: kubernetes.io/dockerconfigjson, data: {.dockerconfigjson: YQ==}}
                data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid character 'a' looking for beginning of value
            stringData: {t: text}
                fine
        "#]],
    );
}

#[test]
fn config_maps() {
    check(
        CONFIG_MAP,
        &["{}", "data: {'a b': v}", "binaryData: {k: YQ==}"],
        expect![[r#"
        {}
            fine
        data: {'a b': v}
            data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')
        binaryData: {k: YQ==}
            data[k]: Invalid value: "k": duplicate of key present in binaryData
    "#]],
    );
}
