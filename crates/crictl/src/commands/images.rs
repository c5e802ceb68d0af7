//! `images`, `imagefsinfo`, `rmi`.
use super::{Command, STATUS_OUTPUT};
use crate::failure::{Failure, Level, Outcome, While};
use crate::flags::{Arguments, Flag, list, switch, text};
use crate::print::{self, Status, WIDE, tame, truncated};
use crate::session::{Session, wait};
use crate::{human, message, select};
use api::quote::Quoted;
use runtime::cri::Cri as _;
use runtime::cri::v1::*;
use std::collections::BTreeSet;

static FLAGS: &[Flag] = &[
    switch("verbose", "Show verbose info for images").or("v"),
    switch("quiet", "Only show image IDs").or("q"),
    list("filter", "Only images that meet a condition: dangling=, reference=, before=, since=")
        .or("f"),
    text("output", "Output format, One of: json|yaml|table").or("o"),
    switch("digests", "Show digests"),
    switch("no-trunc", "Show output without truncating the ID"),
    switch("pinned", "Show whether the image is pinned or not"),
];

pub static IMAGES: Command = Command {
    name: "images",
    aliases: &["image", "img"],
    about: "List images",
    usage: "[REPOSITORY[:TAG]]",
    flags: &[FLAGS],
    run: |session, arguments| Box::pin(images(session, arguments)),
};

pub static FILE_SYSTEMS: Command = Command {
    name: "imagefsinfo",
    about: "Return image filesystem info",
    flags: &[STATUS_OUTPUT],
    run: |session, arguments| Box::pin(file_systems(session, arguments)),
    ..Command::EMPTY
};

static REMOVE_FLAGS: &[Flag] = &[
    switch("all", "Remove all images").or("a"),
    switch("prune", "Remove all unused images").or("q"),
];

pub static REMOVE: Command = Command {
    name: "rmi",
    about: "Remove one or more images, each with all its tags",
    usage: "IMAGE-ID [IMAGE-ID...]",
    flags: &[REMOVE_FLAGS],
    run: |session, arguments| Box::pin(remove(session, arguments)),
    ..Command::EMPTY
};

async fn images(session: &mut Session, arguments: Arguments) -> Outcome {
    if arguments.words.len() > 1 {
        return Err(Failure::Help);
    }
    session.image().await?;
    let name = arguments.words.first().map_or("", String::as_str);
    let listed = select::images(session, name, arguments.list("filter")).await;
    let images = listed.during(|| "listing images".to_owned())?;
    let output = arguments.text("output");
    if matches!(output.as_str(), "json" | "yaml") {
        let answer = ListImagesResponse { images };
        return print::answer(session, &output, "ListImagesResponse", &answer).map(|_| ());
    }
    let (digests, pinned) = (arguments.is("digests"), arguments.is("pinned"));
    let columns = [
        ("IMAGE", true),
        ("TAG", true),
        ("DIGEST", digests),
        ("IMAGE ID", true),
        ("SIZE", true),
        ("PINNED", pinned),
    ];
    let shown = |cells: [String; 6]| -> Vec<String> {
        cells.into_iter().zip(columns).filter(|(_, (_, is))| *is).map(|(cell, _)| cell).collect()
    };
    let mut rows = vec![shown(columns.map(|(name, _)| name.to_owned()))];
    for image in &images {
        if arguments.is("quiet") {
            writeln!(session.out, "{}", tame(&image.id))?;
        } else if arguments.is("verbose") {
            describe(session, image)?;
        } else {
            let (name, mut digest) = select::repo_digest(&image.repo_digests);
            let mut id = image.id.clone();
            if !arguments.is("no-trunc") {
                id = truncated(&id, "sha256:");
                digest = truncated(&digest, "sha256:");
            }
            for (name, tag) in select::repo_tags(&image.repo_tags, &name) {
                let size = human::size(image.size, 3);
                let row = [name, tag, digest.clone(), id.clone(), size, image.pinned.to_string()];
                rows.push(shown(row));
            }
        }
    }
    if !arguments.is("quiet") && !arguments.is("verbose") {
        session.out.write_all(print::table(&rows, WIDE).as_bytes())?;
    }
    Ok(())
}

fn describe(session: &mut Session, image: &Image) -> Outcome {
    let out = &mut session.out;
    writeln!(out, "ID: {}", tame(&image.id))?;
    for tag in &image.repo_tags {
        writeln!(out, "RepoTags: {}", tame(tag))?;
    }
    for digest in &image.repo_digests {
        writeln!(out, "RepoDigests: {}", tame(digest))?;
    }
    if image.size != 0 {
        writeln!(out, "Size: {}", image.size)?;
    }
    if let Some(uid) = &image.uid {
        writeln!(out, "Uid: value:{}", uid.value)?;
    }
    if !image.username.is_empty() {
        writeln!(out, "Username: {}", tame(&image.username))?;
    }
    if image.pinned {
        writeln!(out, "Pinned: true")?;
    }
    Ok(writeln!(out)?)
}

async fn file_systems(session: &mut Session, arguments: Arguments) -> Outcome {
    let client = session.image().await?;
    let told = wait(None, client.image_fs_info(ImageFsInfoRequest {})).await;
    let told = told.during(|| "image filesystem info request".to_owned())?;
    let format = arguments.some("output").unwrap_or_else(|| "json".to_owned());
    if format != "table" {
        let status = Some(message::to_value("ImageFsInfoResponse", &told)?);
        let status = Status { status, ..Status::default() };
        return print::statuses(session, vec![status], &format, &arguments.text("template"));
    }
    let kinds = [("Container", &told.container_filesystems), ("Image", &told.image_filesystems)];
    for (kind, all) in kinds {
        writeln!(session.out, "{kind} Filesystem ")?;
        for (at, one) in all.iter().enumerate() {
            let used = one.used_bytes.as_ref().map_or(0, |used| used.value);
            let inodes = one.inodes_used.as_ref().map_or(0, |used| used.value);
            let place = one.fs_id.as_ref().map_or("", |id| &id.mountpoint);
            writeln!(session.out, "TimeStamp[{at}]: {}", one.timestamp)?;
            writeln!(session.out, "Disk[{at}]: {}", human::size(used, 4))?;
            writeln!(session.out, "Inodes[{at}]: {inodes}")?;
            writeln!(session.out, "Mountpoint[{at}]: {}", tame(place))?;
        }
    }
    Ok(())
}

async fn remove(session: &mut Session, arguments: Arguments) -> Outcome {
    let client = session.image().await?;
    let (all, prune) = (arguments.is("all"), arguments.is("prune"));
    let mut ids: BTreeSet<String> = arguments.words.iter().cloned().collect();
    if all || prune {
        let listed = session.within(client.list_images(ListImagesRequest::default())).await?;
        let images = listed.images.into_iter().filter(|image| !(prune && image.pinned));
        ids.extend(images.map(|image| image.id));
    }
    if prune {
        let runtime = session.runtime().await?;
        let listed = session.within(runtime.list_containers(Default::default())).await?;
        for container in listed.containers {
            let image = container.image.unwrap_or_default().image;
            match select::image_status(session, &image, false).await {
                Ok(told) => {
                    ids.remove(&told.image.unwrap_or_default().id);
                }
                Err(failure) => {
                    let why = failure.message().unwrap_or_default();
                    let text = format!("image status request for {} failed: {why}", Quoted(&image));
                    session.log(Level::Error, &text)?;
                }
            }
        }
    }
    if ids.is_empty() {
        return match all || prune {
            true => session.log(Level::Info, "No images to remove"),
            false => Err(Failure::Help),
        };
    }
    let mut failed = Vec::new();
    for id in ids {
        failed.extend(remove_one(session, &id, prune).await.err());
    }
    Failure::of_all(failed)
}

async fn remove_one(session: &mut Session, id: &str, prune: bool) -> Outcome {
    let told = select::image_status(session, id, false).await;
    let told = told.during(|| format!("image status request for {} failed", Quoted(id)))?;
    let image = told.image.ok_or_else(|| Failure::Said(format!("no such image {id}")))?;
    let is_name = !id.starts_with("sha256:") && id.contains([':', '/']);
    if is_name && image.repo_tags.len() > 1 {
        let text = format!(
            "Image {} has multiple tags. Removing this image will delete all of the following tags:",
            Quoted(id)
        );
        session.log(Level::Warning, &text)?;
        for tag in &image.repo_tags {
            session.log(Level::Warning, &format!("  {tag}"))?;
        }
    }
    let client = session.image().await?;
    let spec = ImageSpec { image: id.to_owned(), ..ImageSpec::default() };
    let removed =
        session.within(client.remove_image(RemoveImageRequest { image: Some(spec) })).await;
    match removed.during(|| format!("error of removing image {}", Quoted(id))) {
        // Somebody may have begun to use it.
        Err(_) if prune => return Ok(()),
        ended => ended?,
    };
    let names = if image.repo_tags.is_empty() { &image.repo_digests } else { &image.repo_tags };
    for name in names {
        writeln!(session.out, "Deleted: {}", tame(name))?;
    }
    Ok(())
}
