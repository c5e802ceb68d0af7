//! Control groups of v2 alone. Which controllers there are is the machine's business: on one that has
//! given them to v1 hierarchies there are none but a few, so a limit is either in force or refused.
use runtime::cri::Cri;
use runtime::cri::v1::*;

use crate::containers::security;
use crate::machine::{Machine, Setup};

const UNIFIED: Setup = Setup { handler: "", copied: false, unified: true };

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_in_force_or_refused() {
    let machine = Machine::with(UNIFIED).await;
    let sandbox = machine.sandbox().await;
    let (_, log) = machine
        .output(&sandbox, "cat /proc/self/cgroup /sys/fs/cgroup/cgroup.controllers", |_| {})
        .await;
    assert!(log.lines().any(|line| line == "0::/"), "it sees its own group as the root: {log}");
    let controllers = log.lines().last().filter(|line| !line.contains(':')).unwrap_or_default();
    let rows: [(&str, &str, &str, LinuxContainerResources); 4] = [
        (
            "memory",
            "memory.max",
            "33554432",
            LinuxContainerResources { memory_limit_in_bytes: 32 << 20, ..Default::default() },
        ),
        (
            "cpu",
            "cpu.max",
            "50000 100000",
            LinuxContainerResources {
                cpu_quota: 50_000,
                cpu_period: 100_000,
                ..Default::default()
            },
        ),
        (
            "cpu",
            "cpu.weight",
            "100",
            LinuxContainerResources { cpu_shares: 1024, ..Default::default() },
        ),
        (
            "hugetlb",
            "hugetlb.2MB.max",
            "4194304",
            LinuxContainerResources {
                hugepage_limits: vec![HugepageLimit {
                    page_size: "2MB".to_owned(),
                    limit: 4 << 20,
                }],
                ..Default::default()
            },
        ),
    ];
    for (controller, file, value, resources) in rows {
        let command = format!("cat /sys/fs/cgroup/{file}; sleep 1000");
        let limited =
            |c: &mut ContainerConfig| c.linux.as_mut().unwrap().resources = Some(resources.clone());
        let id = machine.create(&sandbox, &command, limited).await.unwrap();
        let started = machine.start(&id).await;
        if !controllers.split_whitespace().any(|known| known == controller) {
            // Without hugepages there is nothing to limit.
            if controller != "hugetlb" {
                let error = started.unwrap_err();
                assert!(error.message().contains(file), "{error}");
            }
            continue;
        }
        started.unwrap();
        let seen = machine.exec(&id, &["cat", &format!("/sys/fs/cgroup/{file}")]).await;
        assert_eq!(String::from_utf8_lossy(&seen.stdout).trim(), value, "{file}");
        let mut more = resources.clone();
        for limit in &mut more.hugepage_limits {
            limit.limit *= 2;
        }
        let request = UpdateContainerResourcesRequest {
            container_id: id.clone(),
            linux: Some(more),
            ..Default::default()
        };
        machine.service.update_container_resources(request).await.unwrap();
        if controller == "hugetlb" {
            let seen = machine.exec(&id, &["cat", &format!("/sys/fs/cgroup/{file}")]).await;
            assert_eq!(String::from_utf8_lossy(&seen.stdout).trim(), "8388608");
        }
    }
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_denied_and_processes_killed_together() {
    let machine = Machine::with(UNIFIED).await;
    let sandbox = machine.sandbox().await;
    // A loop device's node can be made, not used; what everybody has can be.
    let command = "mknod /tmp/loop b 7 0; head -c 1 /tmp/loop 2>&1 | grep -o 'not permitted'; \
                   head -c 2 /dev/zero | wc -c";
    let (_, log) = machine.output(&sandbox, command, |_| {}).await;
    assert_eq!(log, "not permitted\n2");
    // In the host's process namespace nothing but the group holds them together.
    let tag = format!("{}", fastrand::u32(1_000_000_000..));
    let id = machine
        .run(&sandbox, &format!("sleep {tag} & sleep {tag} & sleep {tag}"), |c| {
            security(c).namespace_options = Some(NamespaceOption {
                pid: NamespaceMode::Node.into(),
                ..NamespaceOption::default()
            });
        })
        .await;
    machine.stop(&id, 0).await;
    assert_eq!(machine.status(&id).await.exit_code, 137);
    crate::machine::until(|| async {
        crate::machine::list_processes(&tag).is_empty().then_some(())
    })
    .await;
    machine.finish().await;
}
