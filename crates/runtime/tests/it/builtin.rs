//! The images that are made of our own executable.
use runtime::cri::Cri;
use runtime::cri::v1::*;
use runtime::image::{Images, RegistriesConfig};

use crate::containers::security;
use crate::machine::{Machine, until};

const PAUSE: &str = "localhost/skiff/pause:latest";
const DEMO: &str = "localhost/skiff/demo:latest";

fn of(image: &str) -> impl Fn(&mut ContainerConfig) + '_ {
    move |config| {
        config.image = Some(ImageSpec { image: image.to_owned(), ..ImageSpec::default() });
        config.command = Vec::new();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_there_without_a_registry_and_share_our_bytes() {
    let machine = Machine::new().await;
    let list = || async {
        let list = machine.service.list_images(ListImagesRequest { filter: None }).await.unwrap();
        let mut images: Vec<Image> = list.images.into_iter().filter(|image| image.pinned).collect();
        images.sort_by(|a, b| a.repo_tags.cmp(&b.repo_tags));
        images
    };
    let images = list().await;
    let names: Vec<&str> = images.iter().flat_map(|i| &i.repo_tags).map(String::as_str).collect();
    let version = env!("CARGO_PKG_VERSION");
    let versioned = |name: &str| format!("localhost/skiff/{name}:v{version}");
    let (volume, volumes) = ("localhost/skiff/volume:latest", versioned("volume"));
    let expected = [DEMO, &versioned("demo"), PAUSE, &versioned("pause"), volume, &volumes];
    assert_eq!(names, expected);

    let spec = ImageSpec { image: DEMO.to_owned(), ..ImageSpec::default() };
    let request = PullImageRequest { image: Some(spec), ..PullImageRequest::default() };
    let pulled = machine.service.pull_image(request).await.unwrap();
    assert_eq!(pulled.image_ref, images[0].id, "nobody is asked for it");

    // An export is an image as any other, and the same when it comes back.
    let store = Images::open(&machine.path("root"), RegistriesConfig::default()).unwrap();
    let archive = machine.path("demo.tar");
    store.export(DEMO, std::fs::File::create(&archive).unwrap()).unwrap();
    let elsewhere = Images::open(&machine.path("elsewhere"), RegistriesConfig::default()).unwrap();
    let imported = elsewhere.import(&archive, None).await.unwrap();
    assert_eq!(imported[0].id.to_string(), images[0].id);

    use std::os::unix::fs::MetadataExt;
    let layer = store.layers_root().join(imported[0].layers[0].hex());
    let (ours, theirs) = (
        std::fs::metadata(env!("CARGO_BIN_EXE_runtime-alone")).unwrap(),
        std::fs::metadata(layer.join("skiff")).unwrap(),
    );
    // Where files can be cloned they are; there is no telling from outside.
    if theirs.nlink() > 1 {
        assert_eq!((ours.dev(), ours.ino()), (theirs.dev(), theirs.ino()));
    }
    assert_eq!(list().await, images);
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_collects_orphans_and_ends_when_asked() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let id = machine.run(&sandbox, "", of(PAUSE)).await;
    let target = id.clone();
    // A process of its namespace leaves an orphan behind: nobody but the first can collect it.
    let visitor = machine
        .run(&sandbox, "(sh -c 'sleep 0.01 & echo left' &); sleep 1000", move |c| {
            security(c).namespace_options = Some(NamespaceOption {
                pid: NamespaceMode::Target.into(),
                target_id: target,
                ..NamespaceOption::default()
            });
        })
        .await;
    let status = machine.status(&visitor).await;
    until(|| async { machine.log(&status).contains("left").then_some(()) }).await;
    until(|| async {
        let seen = machine.exec(&visitor, &["ps"]).await;
        let list = String::from_utf8_lossy(&seen.stdout).into_owned();
        assert!(list.lines().any(|line| line.contains("pause")), "{list}");
        (!list.contains("sleep 0.01") && !list.contains("[s")).then_some(())
    })
    .await;
    machine.stop(&id, 10).await;
    assert_eq!(machine.status(&id).await.exit_code, 0, "it was asked, not killed");
    machine.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_answers() {
    let machine = Machine::new().await;
    let sandbox = machine.sandbox().await;
    let id = machine.run(&sandbox, "", of(DEMO)).await;
    let client = machine.run(&sandbox, "sleep 1000", |_| {}).await;
    let ask = ["sh", "-c", "printf 'GET /hostname HTTP/1.0\r\n\r\n' | nc 127.0.0.1 8080"];
    until(|| async {
        let seen = machine.exec(&client, &ask).await;
        String::from_utf8_lossy(&seen.stdout).ends_with("boxed\n").then_some(())
    })
    .await;
    let user = machine.status(&id).await.user.unwrap().linux.unwrap();
    assert_eq!((user.uid, user.gid), (65535, 65535));
    machine.finish().await;
}
