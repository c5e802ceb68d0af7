//! The image store, worked on by two processes at once; roots of very many layers; roots that are
//! copied.
use std::fs;

use runtime::cri::Cri;
use runtime::cri::v1::*;
use runtime::image::{Images, RegistriesConfig};
use testkit::image::write_busybox;

use crate::containers::security;
use crate::machine::{IMAGE, Machine, Setup, until};

#[tokio::test(flavor = "multi_thread")]
async fn what_one_process_does_to_images_the_other_sees() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let root = machine.path("root");
    let store = Images::open(&root, RegistriesConfig::default()).unwrap();
    let archive = machine.path("other.tar");
    let other = "localhost/other:1";
    write_busybox(&archive, other, &[("mark", "other")]).unwrap();
    let named = |name: &str| {
        let spec = ImageSpec { image: name.to_owned(), ..ImageSpec::default() };
        ImageStatusRequest { image: Some(spec), verbose: false }
    };
    let service = machine.service.clone();
    let known = async |name: &str| service.image_status(named(name)).await.unwrap().image.is_some();
    assert!(!known(other).await);
    store.import(&archive, None).await.unwrap();
    assert!(known(other).await, "the daemon sees what was imported beside it");

    let id = machine.run(&sandbox, "cat /mark; sleep 1000", |c| c.image = named(other).image).await;
    store.remove(other).unwrap();
    assert!(!known(other).await);
    store.collect(|| runtime::layers_in_use(&root)).unwrap();
    let seen = machine.exec(&id, &["cat", "/mark"]).await;
    assert_eq!(seen.stdout, b"other", "a layer in use is nobody's to collect");

    let request = RemoveImageRequest { image: named(IMAGE).image };
    machine.service.remove_image(request).await.unwrap();
    assert!(store.find(IMAGE).is_none(), "we see what the daemon removed");
    machine.remove(&id).await;
    until(|| async {
        let left = fs::read_dir(root.join("layers")).unwrap().count();
        (left == 0).then_some(())
    })
    .await;
    machine.finish().await;
}

/// Pulls, tags and removals of two processes in each other's way.
#[tokio::test(flavor = "multi_thread")]
async fn tags_given_by_two_processes_are_all_kept() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Images::open(folder.path(), RegistriesConfig::default()).unwrap();
    let (one, two) = (open(), open());
    let archive = |tag: usize| {
        let path = folder.path().join(format!("{tag}.tar"));
        write_busybox(&path, &format!("localhost/same:{tag}"), &[]).unwrap();
        path
    };
    let archives: Vec<_> = (0..16).map(archive).collect();
    let imports = archives.iter().enumerate().map(|(number, path)| {
        let store = if number % 2 == 0 { &one } else { &two };
        store.import(path, None)
    });
    for imported in futures_util::future::join_all(imports).await {
        imported.unwrap();
    }
    for store in [&one, &two] {
        let tags: usize = store.list().iter().map(|image| image.tags.len()).sum();
        assert_eq!((store.list().len(), tags), (1, 16));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_may_have_hundreds_of_layers() {
    let machine = Machine::new().await;
    let archive = machine.path("deep.tar");
    testkit::image::write_deep_busybox(&archive, "localhost/deep:1", 300).unwrap();
    let store = Images::open(&machine.path("root"), RegistriesConfig::default()).unwrap();
    store.import(&archive, None).await.unwrap();
    let spec = ImageSpec { image: "localhost/deep:1".to_owned(), ..ImageSpec::default() };
    let sandbox = machine.sandbox().await;
    let command =
        "cat /number; ls /layers | wc -l; ls /mounted/layers | wc -l; touch /new && echo x";
    let (_, log) = machine
        .output(&sandbox, command, |c| {
            c.image = Some(spec.clone());
            c.mounts = vec![Mount {
                container_path: "/mounted".to_owned(),
                image: Some(spec),
                readonly: true,
                ..Mount::default()
            }];
        })
        .await;
    assert_eq!(log, "300\n300\n300\nx");
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_overlayfs_layers_are_copied() {
    let machine = Machine::with(Setup { copied: true, ..Setup::default() }).await;
    let archive = machine.path("deep.tar");
    testkit::image::write_deep_busybox(&archive, "localhost/deep:1", 3).unwrap();
    let store = Images::open(&machine.path("root"), RegistriesConfig::default()).unwrap();
    store.import(&archive, None).await.unwrap();
    let spec = ImageSpec { image: "localhost/deep:1".to_owned(), ..ImageSpec::default() };
    let sandbox = machine.sandbox().await;
    let command = "cat /number; ls /layers | wc -l; ls /mounted/layers | wc -l; \
                   touch /new && echo wrote; grep -c ' / overlay' /proc/mounts; sleep 1000";
    let id = machine
        .run(&sandbox, command, |c| {
            c.image = Some(spec.clone());
            c.mounts = vec![Mount {
                container_path: "/mounted".to_owned(),
                image: Some(spec.clone()),
                readonly: true,
                ..Mount::default()
            }];
        })
        .await;
    let status = machine.status(&id).await;
    until(|| async { (machine.log(&status).lines().count() == 5).then_some(()) }).await;
    assert_eq!(machine.log(&status), "3\n3\n3\nwrote\n0");
    let request = ContainerStatsRequest { container_id: id.clone() };
    let stats = machine.service.container_stats(request).await.unwrap().stats.unwrap();
    assert!(stats.writable_layer.unwrap().used_bytes.unwrap().value > 1 << 20);
    let (_, log) = machine
        .output(&sandbox, "ls /new 2>/dev/null; touch /new 2>/dev/null || echo read-only", |c| {
            security(c).readonly_rootfs = true;
        })
        .await;
    assert_eq!(log, "read-only", "another container's root is another copy");
    machine.finish().await;
}
