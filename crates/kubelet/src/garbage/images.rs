//! Images that no container uses go, those first that were used longest ago, when the disk that they
//! are on is fuller than the high threshold, until it is at the low one
//! (`pkg/kubelet/images/image_gc_manager.go`).
use crate::eviction;
use crate::runtime::cri;
use crate::worker::Kubelet;
use client::events::Happening;
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// When images were first seen, and last seen in use.
pub type Seen = HashMap<String, (Timestamp, Timestamp)>;

/// How much is to go of what nobody uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// What is above the thresholds.
    Thresholds,
    Everything,
}

pub async fn collect(kubelet: &Kubelet, how_much: Wanted) {
    let seen = &mut *kubelet.images.lock().await;
    let images = kubelet.runtime.list_images(Default::default()).await;
    let containers = kubelet.runtime.list_containers(Default::default()).await;
    let place = kubelet.runtime.image_fs_info(cri::ImageFsInfoRequest {}).await;
    let (Ok(images), Ok(containers), Ok(place)) = (images, containers, place) else { return };
    let mountpoint = place.image_filesystems.into_iter().find_map(|one| one.fs_id);
    let Some(mountpoint) = mountpoint.map(|id| id.mountpoint) else { return };
    let Ok(disk) = rustix::fs::statvfs(mountpoint.as_str()) else { return };
    let capacity = disk.f_blocks * disk.f_frsize;
    if capacity == 0 {
        let note = "invalid capacity 0 on image filesystem";
        let event = Happening::warning(eviction::reference(kubelet), "InvalidDiskCapacity", note);
        kubelet.recorder.record(event);
    }
    let used = capacity.saturating_sub(disk.f_bavail * disk.f_frsize);
    let in_use: HashSet<String> = containers
        .containers
        .into_iter()
        .flat_map(|one| [one.image_ref, one.image_id, one.image.unwrap_or_default().image])
        .collect();
    let now = kubelet.context.now();
    note(seen, &images.images, &in_use, now);
    let here: Vec<String> = images.images.iter().map(|image| image.id.clone()).collect();
    kubelet.pull_records.keep(&here);
    let thresholds = (kubelet.config.image_gc_high, kubelet.config.image_gc_low);
    let wanted = match how_much {
        Wanted::Thresholds => excess(used, capacity, thresholds),
        Wanted::Everything => u64::MAX,
    };
    let config = &kubelet.config;
    let is_old = |image: &cri::Image| {
        let since = seen.get(&image.id).map(|(first, used)| (*first).max(*used));
        let age = since.map(|since| now.duration_since(since).unsigned_abs());
        config.image_max_age.zip(age).is_some_and(|(longest, age)| age > longest)
    };
    let mut freed = 0;
    for image in candidates(&images.images, &in_use, seen, now, config.image_min_age) {
        if freed >= wanted && !is_old(image) {
            continue;
        }
        let spec = cri::ImageSpec { image: image.id.clone(), ..cri::ImageSpec::default() };
        match kubelet.runtime.remove_image(cri::RemoveImageRequest { image: Some(spec) }).await {
            Ok(_) => freed += image.size,
            Err(error) => tracing::warn!("failed to remove image {}: {error}", image.id),
        }
    }
    if freed < wanted && how_much == Wanted::Thresholds {
        tracing::warn!("images: {wanted} bytes were to be freed, and {freed} were");
    }
}

/// How much has to go.
fn excess(used: u64, capacity: u64, (high, low): (u8, u8)) -> u64 {
    let percent = |part: u8| u128::from(capacity) * u128::from(part) / 100;
    if u128::from(used) < percent(high) || capacity == 0 {
        return 0;
    }
    u64::try_from(u128::from(used).saturating_sub(percent(low))).unwrap_or(u64::MAX)
}

fn is_used(image: &cri::Image, in_use: &HashSet<String>) -> bool {
    let names = image.repo_tags.iter().chain(&image.repo_digests).chain([&image.id]);
    names.into_iter().any(|name| in_use.contains(name))
}

fn note(seen: &mut Seen, images: &[cri::Image], in_use: &HashSet<String>, now: Timestamp) {
    seen.retain(|id, _| images.iter().any(|image| image.id == *id));
    for image in images {
        let (_, used) = seen.entry(image.id.clone()).or_insert((now, Timestamp::MIN));
        if is_used(image, in_use) {
            *used = now;
        }
    }
}

fn candidates<'a>(
    images: &'a [cri::Image],
    in_use: &HashSet<String>,
    seen: &Seen,
    now: Timestamp,
    least_age: Duration,
) -> Vec<&'a cri::Image> {
    let times = |image: &cri::Image| seen.get(&image.id).copied().unwrap_or((now, now));
    let mut free: Vec<&cri::Image> = images
        .iter()
        .filter(|image| !image.pinned && !is_used(image, in_use))
        .filter(|image| now.duration_since(times(image).0).unsigned_abs() >= least_age)
        .collect();
    free.sort_by_key(|image| {
        let (first, used) = times(image);
        (used, first)
    });
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_emptied_to_the_low_threshold() {
        assert_eq!(excess(84, 100, (85, 80)), 0);
        assert_eq!(excess(85, 100, (85, 80)), 5);
        assert_eq!(excess(100, 100, (85, 80)), 20);
        assert_eq!(excess(0, 0, (85, 80)), 0);
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let image = |id: &str| cri::Image { id: id.into(), ..Default::default() };
        let images = [
            image("used"),
            image("lately"),
            image("never"),
            cri::Image { pinned: true, ..image("pinned") },
            image("new"),
        ];
        let mut seen = Seen::new();
        note(&mut seen, &images[..4], &HashSet::from(["lately".to_owned()]), at(0));
        let in_use = HashSet::from(["used".to_owned()]);
        note(&mut seen, &images, &in_use, at(300));
        let found: Vec<_> = candidates(&images, &in_use, &seen, at(300), Duration::from_secs(120))
            .iter()
            .map(|one| one.id.as_str())
            .collect();
        assert_eq!(found, ["never", "lately"]);
    }
}
