//! A container's security context, merged with its pod's, in CRI's words.
use crate::pod::{self, Role};
use crate::runtime::cri;
use crate::users;
use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, Pod, PodSecurityContext, SELinuxOptions, SeccompProfile,
    SecurityContext,
};
use std::path::Path;

/// Paths of `/proc` that containers must not see, and those that they must not write: upstream's
/// (`pkg/securitycontext`).
const MASKED: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: &[&str] =
    &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub fn namespaces(pod: &Pod, users: Option<users::Map>) -> cri::NamespaceOption {
    let spec = pod::spec(pod);
    let node_or = |host: Option<bool>, other: cri::NamespaceMode| match host {
        Some(true) => cri::NamespaceMode::Node,
        _ => other,
    };
    let shared = spec.share_process_namespace == Some(true);
    let process = if shared { cri::NamespaceMode::Pod } else { cri::NamespaceMode::Container };
    cri::NamespaceOption {
        network: node_or(spec.host_network, cri::NamespaceMode::Pod).into(),
        ipc: node_or(spec.host_ipc, cri::NamespaceMode::Pod).into(),
        pid: node_or(spec.host_pid, process).into(),
        userns_options: Some(users::namespace(users)),
        ..cri::NamespaceOption::default()
    }
}

pub fn pod_context(pod: &Pod) -> PodSecurityContext {
    pod::spec(pod).security_context.clone().unwrap_or_default()
}

/// Groups that a pod's processes are in besides their own: those asked for and the volumes'.
pub fn groups(context: &PodSecurityContext) -> Vec<i64> {
    let mut groups = context.supplemental_groups.clone().unwrap_or_default();
    groups.extend(context.fs_group);
    groups
}

/// The user that every container runs as, if they say so and agree (ephemeral ones do not count).
pub fn only_user(pod: &Pod) -> Option<i64> {
    let context = pod_context(pod);
    let user = |container: &Container| {
        let own = container.security_context.as_ref().and_then(|own| own.run_as_user);
        own.or(context.run_as_user)
    };
    let mut users = pod::containers(pod).map(|(_, container)| user(container));
    let first = users.next()??;
    users.all(|other| other == Some(first)).then_some(first)
}

pub fn policy(context: &PodSecurityContext) -> i32 {
    match context.supplemental_groups_policy.as_deref() {
        Some("Strict") => cri::SupplementalGroupsPolicy::Strict.into(),
        _ => cri::SupplementalGroupsPolicy::Merge.into(),
    }
}

/// Filters of system calls, as the node has them.
#[derive(Clone, Copy)]
pub struct Filters<'a> {
    /// A container that asks for none gets the runtime's.
    pub by_default: bool,
    /// Where those are that pods name by their files: `seccomp` below the kubelet's folder.
    pub folder: &'a Path,
}

/// `Err`: the pod asks for what must not be (`runAsNonRoot`) or cannot be here.
pub fn linux(
    pod: &Pod,
    container: &Container,
    role: Role,
    target: Option<&str>,
    image: &ImageUser,
    users: Option<users::Map>,
    filters: Filters<'_>,
) -> Result<cri::LinuxContainerSecurityContext, String> {
    let whole = pod_context(pod);
    let own = container.security_context.clone().unwrap_or_default();
    let user = own.run_as_user.or(whole.run_as_user);
    check_user(pod, container, &own, &whole, user, image)?;
    let mut options = namespaces(pod, users);
    if let (Role::Ephemeral, Some(target)) = (role, target) {
        options.pid = cri::NamespaceMode::Target.into();
        options.target_id = target.to_owned();
    }
    let privileged = own.privileged == Some(true);
    let default = filters.by_default.then(runtime_default);
    let unmasked = privileged || own.proc_mount.as_deref() == Some("Unmasked");
    let paths = |list: &[&str]| match unmasked {
        true => Vec::new(),
        false => list.iter().map(|path| String::from(*path)).collect(),
    };
    let id = |value| cri::Int64Value { value };
    let profile = own.app_armor_profile.as_ref().or(whole.app_armor_profile.as_ref());
    let label = own.se_linux_options.as_ref().or(whole.se_linux_options.as_ref());
    Ok(cri::LinuxContainerSecurityContext {
        apparmor: profile.map(app_armor),
        selinux_options: label.map(se_linux),
        capabilities: own.capabilities.as_ref().map(|all| cri::Capability {
            add_capabilities: all.add.clone().unwrap_or_default(),
            drop_capabilities: all.drop.clone().unwrap_or_default(),
            ..cri::Capability::default()
        }),
        privileged,
        namespace_options: Some(options),
        run_as_user: user.map(id),
        run_as_username: match (user, image) {
            (None, ImageUser::Name(name)) => name.clone(),
            _ => String::new(),
        },
        run_as_group: own.run_as_group.or(whole.run_as_group).map(id),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: groups(&whole),
        supplemental_groups_policy: policy(&whole),
        // A process that may not gain privileges gains none.
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: paths(MASKED),
        readonly_paths: paths(READ_ONLY),
        seccomp: Some(seccomp(
            own.seccomp_profile.as_ref().or(whole.seccomp_profile.as_ref()).or(default.as_ref()),
            privileged,
            filters.folder,
        )),
        ..cri::LinuxContainerSecurityContext::default()
    })
}

fn app_armor(profile: &AppArmorProfile) -> cri::SecurityProfile {
    use cri::security_profile::ProfileType;
    let profile_type = match profile.type_.as_str() {
        "RuntimeDefault" => ProfileType::RuntimeDefault,
        "Localhost" => ProfileType::Localhost,
        _ => ProfileType::Unconfined,
    };
    let localhost_ref = profile.localhost_profile.clone().unwrap_or_default();
    cri::SecurityProfile { profile_type: profile_type.into(), localhost_ref }
}

fn se_linux(options: &SELinuxOptions) -> cri::SeLinuxOption {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    cri::SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    }
}

/// Whom an image says it runs as.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ImageUser {
    #[default]
    Unsaid,
    Id(i64),
    Name(String),
}

impl ImageUser {
    pub fn of(image: &cri::Image) -> ImageUser {
        match (&image.uid, image.username.as_str()) {
            (Some(uid), _) => ImageUser::Id(uid.value),
            (None, "") => ImageUser::Unsaid,
            (None, name) => ImageUser::Name(name.to_owned()),
        }
    }
}

fn check_user(
    pod: &Pod,
    container: &Container,
    own: &SecurityContext,
    whole: &PodSecurityContext,
    user: Option<i64>,
    image: &ImageUser,
) -> Result<(), String> {
    if own.run_as_non_root.or(whole.run_as_non_root) != Some(true) {
        return Ok(());
    }
    let place = format!("(pod: \"{}\", container: {})", pod::shown(pod), container.name);
    match (user, image) {
        (Some(0), _) => Err(format!("container's runAsUser breaks non-root policy {place}")),
        (Some(_), _) => Ok(()),
        (None, ImageUser::Id(0) | ImageUser::Unsaid) => {
            Err(format!("container has runAsNonRoot and image will run as root {place}"))
        }
        (None, ImageUser::Name(name)) => Err(format!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root {place}"
        )),
        (None, ImageUser::Id(_)) => Ok(()),
    }
}

/// The filter of system calls that the runtime has for everybody.
pub fn runtime_default() -> SeccompProfile {
    SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() }
}

pub fn seccomp(
    profile: Option<&SeccompProfile>,
    privileged: bool,
    folder: &Path,
) -> cri::SecurityProfile {
    use cri::security_profile::ProfileType;
    let (profile_type, file) = match profile {
        _ if privileged => (ProfileType::Unconfined, None),
        Some(profile) => match profile.type_.as_str() {
            "RuntimeDefault" => (ProfileType::RuntimeDefault, None),
            "Localhost" => (ProfileType::Localhost, profile.localhost_profile.as_ref()),
            _ => (ProfileType::Unconfined, None),
        },
        None => (ProfileType::Unconfined, None),
    };
    let localhost_ref = file.map(|file| folder.join(file).display().to_string());
    cri::SecurityProfile {
        profile_type: profile_type.into(),
        localhost_ref: localhost_ref.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(
        pod: serde_json::Value,
        own: serde_json::Value,
        image: ImageUser,
    ) -> Result<cri::LinuxContainerSecurityContext, String> {
        let pod = json!({ "metadata": { "name": "p", "namespace": "n", "uid": "u" }, "spec": { "containers": [], "securityContext": pod } });
        let container = json!({ "name": "c", "securityContext": own });
        linux(
            &serde_json::from_value(pod).unwrap(),
            &serde_json::from_value(container).unwrap(),
            Role::Regular,
            None,
            &image,
            None,
            Filters { by_default: false, folder: Path::new("/kubelet/seccomp") },
        )
    }

    #[test]
    fn the_containers_word_goes_before_the_pods() {
        let made = check(
            json!({ "runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "supplementalGroups": [4] }),
            json!({ "runAsUser": 5, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } }),
            ImageUser::Unsaid,
        )
        .unwrap();
        assert_eq!((made.run_as_user.unwrap().value, made.run_as_group.unwrap().value), (5, 2));
        assert_eq!(made.supplemental_groups, [4, 3]);
        assert!(made.readonly_rootfs && made.no_new_privs);
        assert_eq!(made.capabilities.unwrap().drop_capabilities, ["ALL"]);
        assert_eq!(made.masked_paths.len(), MASKED.len());
    }

    #[test]
    fn filters_of_the_machine_are_below_the_kubelets_folder() {
        let local =
            json!({ "seccompProfile": { "type": "Localhost", "localhostProfile": "a/b.json" } });
        let filter = |own| check(json!({}), own, ImageUser::Unsaid).unwrap().seccomp.unwrap();
        assert_eq!(filter(local.clone()).localhost_ref, "/kubelet/seccomp/a/b.json");
        assert_eq!(filter(json!({})).localhost_ref, "");
        let mut privileged = local;
        privileged["privileged"] = true.into();
        assert_eq!(filter(privileged).localhost_ref, "");
    }

    #[test]
    fn root_is_refused_who_must_not_be_root() {
        let non_root = || json!({ "runAsNonRoot": true });
        assert_eq!(
            check(non_root(), json!({}), ImageUser::Unsaid).unwrap_err(),
            "container has runAsNonRoot and image will run as root (pod: \"p_n(u)\", container: c)"
        );
        assert!(check(non_root(), json!({ "runAsUser": 0 }), ImageUser::Id(5)).is_err());
        assert!(check(non_root(), json!({}), ImageUser::Name("www".into())).is_err());
        assert!(check(non_root(), json!({}), ImageUser::Id(5)).is_ok());
        let asked = json!({ "appArmorProfile": { "type": "Localhost", "localhostProfile": "p" }, "seLinuxOptions": { "level": "s0" } });
        let made = check(json!({}), asked, ImageUser::Unsaid).unwrap();
        assert_eq!(made.apparmor.unwrap().localhost_ref, "p");
        assert_eq!(made.selinux_options.unwrap().level, "s0");
        assert!(
            check(json!({}), json!({ "privileged": true }), ImageUser::Unsaid)
                .unwrap()
                .masked_paths
                .is_empty()
        );
    }
}
