//! Which containers, sandboxes and images are meant: what the runtime filters, and what is filtered here
//! because CRI cannot.
use crate::failure::{Outcome, While};
use crate::flags::{Arguments, Flag, list, number, switch, text};
use crate::session::Session;
use api::quote::Quoted;
use api::regexp::Regexp;
use runtime::cri::Cri as _;
use runtime::cri::v1::*;
use std::collections::HashMap;

/// Filters of containers, without `--state`, whose letter differs between commands.
pub static CONTAINERS: &[Flag] = &[
    text("name", "Filter by container name regular expression pattern"),
    text("pod", "Filter by pod id").or("p"),
    text("image", "Filter by container image"),
    list("label", "Filter by key=value label"),
    switch("latest", "The most recently created container (includes all states)").or("l"),
    number("last", "The last n recently created containers (includes all states); 0 for unlimited")
        .or("n"),
];

pub static PODS: &[Flag] = &[
    text("name", "Filter by pod name regular expression pattern"),
    text("namespace", "Filter by pod namespace regular expression pattern"),
    text("state", "Filter by pod state").or("s"),
    list("label", "Filter by key=value label"),
    switch("latest", "Show the most recently created pod").or("l"),
    number("last", "Show last n recently created pods. Set 0 for unlimited").or("n"),
];

pub const POD_NAME: &str = "io.kubernetes.pod.name";
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";

/// What a container's labels tell of its pod.
pub fn of_labels(labels: &HashMap<String, String>, label: &str) -> String {
    labels.get(label).cloned().unwrap_or_else(|| "unknown".to_owned())
}

#[derive(Debug, Default)]
pub struct Wanted {
    pub id: String,
    pub pod: String,
    pub name: String,
    pub namespace: String,
    pub image: String,
    pub state: String,
    pub labels: HashMap<String, String>,
    pub all: bool,
    pub latest: bool,
    pub last: i64,
}

impl Wanted {
    /// What the flags say that the command has.
    pub fn of(arguments: &Arguments, has: &[&str]) -> Outcome<Wanted> {
        let text = |name: &str| match has.contains(&name) {
            true => arguments.text(name),
            false => String::new(),
        };
        Ok(Wanted {
            id: text("id"),
            pod: text("pod"),
            name: text("name"),
            namespace: text("namespace"),
            image: text("image"),
            state: text("state"),
            labels: arguments.pairs("label")?,
            all: has.contains(&"all") && arguments.is("all"),
            latest: arguments.is("latest"),
            last: arguments.number("last"),
        })
    }

    fn container_filter(&self) -> Outcome<ContainerFilter> {
        use ContainerState::*;
        let state = match self.state.to_lowercase().as_str() {
            "" if self.all => None,
            "" | "running" => Some(ContainerRunning),
            "created" => Some(ContainerCreated),
            "exited" => Some(ContainerExited),
            "unknown" => Some(ContainerUnknown),
            _ => return Err("--state should be one of created, running, exited or unknown".into()),
        };
        // The newest are meant whatever their state.
        let state = state.filter(|_| !self.latest && self.last <= 0);
        Ok(ContainerFilter {
            id: self.id.clone(),
            pod_sandbox_id: self.pod.clone(),
            state: state.map(|state| ContainerStateValue { state: state as i32 }),
            label_selector: self.labels.clone(),
        })
    }

    fn pod_filter(&self) -> Outcome<PodSandboxFilter> {
        let state = match self.state.to_lowercase().as_str() {
            "" => None,
            "ready" => Some(PodSandboxState::SandboxReady),
            "notready" => Some(PodSandboxState::SandboxNotready),
            _ => return Err("--state should be ready or notready".into()),
        };
        Ok(PodSandboxFilter {
            id: self.id.clone(),
            state: state.map(|state| PodSandboxStateValue { state: state as i32 }),
            label_selector: self.labels.clone(),
        })
    }

    /// How many of the newest.
    fn count(&self) -> usize {
        match (self.latest, self.last) {
            (_, 1..) => usize::try_from(self.last).unwrap_or(usize::MAX),
            (true, _) => 1,
            _ => usize::MAX,
        }
    }
}

fn pattern(text: &str) -> Outcome<Option<Regexp>> {
    if text.is_empty() {
        return Ok(None);
    }
    let compiled = Regexp::compile(text)
        .map_err(|error| format!("invalid regular expression {}: {error}", Quoted(text)))?;
    Ok(Some(compiled))
}

fn matches(pattern: Option<&Regexp>, text: &str) -> bool {
    pattern.is_none_or(|pattern| pattern.is_match(text))
}

/// The containers that are meant, the newest first.
pub async fn containers(session: &mut Session, wanted: &Wanted) -> Outcome<Vec<Container>> {
    let runtime = session.runtime().await?;
    let filter = Some(wanted.container_filter()?);
    let (name, namespace) = (pattern(&wanted.name)?, pattern(&wanted.namespace)?);
    let listed = session
        .within(runtime.list_containers(ListContainersRequest { filter }))
        .await
        .during(|| "call list containers RPC".to_owned())?;
    let mut found = Vec::new();
    for container in listed.containers {
        let Some(metadata) = &container.metadata else { continue };
        let of_namespace = of_labels(&container.labels, POD_NAMESPACE);
        if matches(name.as_ref(), &metadata.name) && matches(namespace.as_ref(), &of_namespace) {
            found.push(container);
        }
    }
    if !wanted.image.is_empty() {
        found = of_image(session, &wanted.image, found).await?;
    }
    found.sort_by_key(|container| std::cmp::Reverse(container.created_at));
    found.truncate(wanted.count());
    Ok(found)
}

async fn of_image(
    session: &mut Session,
    image: &str,
    containers: Vec<Container>,
) -> Outcome<Vec<Container>> {
    let id = image_status(session, image, false).await?.image.map(|image| image.id);
    let mut found = Vec::new();
    for container in containers {
        let image = container.image.as_ref().map_or("", |image| &image.image).to_owned();
        let other = image_status(session, &image, false).await?.image.map(|image| image.id);
        if id.is_some() && id == other {
            found.push(container);
        }
    }
    Ok(found)
}

/// The sandboxes that are meant, the newest first.
pub async fn pods(session: &mut Session, wanted: &Wanted) -> Outcome<Vec<PodSandbox>> {
    let runtime = session.runtime().await?;
    let filter = Some(wanted.pod_filter()?);
    let (name, namespace) = (pattern(&wanted.name)?, pattern(&wanted.namespace)?);
    let listed = session
        .within(runtime.list_pod_sandbox(ListPodSandboxRequest { filter }))
        .await
        .during(|| "call list sandboxes RPC".to_owned())?;
    let mut found = listed.items;
    found.retain(|pod| {
        pod.metadata.as_ref().is_some_and(|metadata| {
            matches(name.as_ref(), &metadata.name)
                && matches(namespace.as_ref(), &metadata.namespace)
        })
    });
    found.sort_by_key(|pod| std::cmp::Reverse(pod.created_at));
    found.truncate(wanted.count());
    Ok(found)
}

pub async fn image_status(
    session: &mut Session,
    image: &str,
    verbose: bool,
) -> Outcome<ImageStatusResponse> {
    let client = session.image().await?;
    let image = Some(ImageSpec { image: image.to_owned(), ..ImageSpec::default() });
    session.within(client.image_status(ImageStatusRequest { image, verbose })).await
}

/// The images of a name that meet every condition.
pub async fn images(
    session: &mut Session,
    name: &str,
    conditions: &[String],
) -> Outcome<Vec<Image>> {
    let client = session.image().await?;
    let image = Some(ImageSpec { image: name.to_owned(), ..ImageSpec::default() });
    let request = ListImagesRequest { filter: Some(ImageFilter { image }) };
    let mut images = session.within(client.list_images(request)).await?.images;
    images.sort_by(|one, other| {
        if let (Some(one), Some(other)) = (one.repo_tags.first(), other.repo_tags.first()) {
            return one.cmp(other);
        }
        match (one.repo_digests.first(), other.repo_digests.first()) {
            (Some(one), Some(other)) => one.cmp(other),
            _ => one.id.cmp(&other.id),
        }
    });
    filtered(images, conditions).during(|| "filter images".to_owned())
}

fn filtered(mut images: Vec<Image>, conditions: &[String]) -> Outcome<Vec<Image>> {
    for condition in conditions {
        images = match condition.split_once('=') {
            Some(("dangling", "true")) => {
                images.into_iter().filter(|image| image.repo_tags.is_empty()).collect()
            }
            Some(("dangling", "false")) => {
                images.into_iter().filter(|image| !image.repo_tags.is_empty()).collect()
            }
            Some(("dangling", _)) => Vec::new(),
            Some(("reference", reference)) => {
                let pattern = pattern(reference)?;
                let named = |image: &Image| {
                    let (name, _) = repo_digest(&image.repo_digests);
                    matches(pattern.as_ref(), &name) || name == reference
                };
                images.into_iter().filter(named).collect()
            }
            Some(("before", image)) => {
                images.reverse();
                let mut images = up_to(images, image);
                images.reverse();
                images
            }
            Some(("since", image)) => up_to(images, image),
            _ => return Err(format!("unknown filter flag: {condition}").into()),
        };
    }
    Ok(images)
}

/// Those before the one that is named, by name, digest or the start of its id.
fn up_to(images: Vec<Image>, named: &str) -> Vec<Image> {
    let is = |image: &Image| match (named.contains(':'), named.contains('@')) {
        (true, true) => image.repo_digests.first().is_some_and(|first| first.starts_with(named)),
        (true, false) => {
            let (name, _) = repo_digest(&image.repo_digests);
            repo_tags(&image.repo_tags, &name)
                .first()
                .is_some_and(|(name, tag)| format!("{name}:{tag}") == named)
        }
        _ => image.id.starts_with(named),
    };
    let by_digest = named.contains('@');
    images
        .into_iter()
        .take_while(|image| !is(image))
        .filter(|image| !by_digest || !image.repo_digests.is_empty())
        .collect()
}

const NONE: &str = "<none>";

/// Names and tags, each a row.
pub fn repo_tags(tags: &[String], name: &str) -> Vec<(String, String)> {
    if tags.is_empty() {
        return vec![(name.to_owned(), NONE.to_owned())];
    }
    let pair = |tag: &String| match tag.rsplit_once(':') {
        Some((NONE, tag)) => (name.to_owned(), tag.to_owned()),
        Some((name, tag)) => (name.to_owned(), tag.to_owned()),
        None => ("errorRepoTag".to_owned(), "errorRepoTag".to_owned()),
    };
    tags.iter().map(pair).collect()
}

/// The first digest and whose it is.
pub fn repo_digest(digests: &[String]) -> (String, String) {
    let Some(first) = digests.first() else { return (NONE.to_owned(), NONE.to_owned()) };
    match first.split_once('@') {
        Some((name, digest)) if !digest.contains('@') => (name.to_owned(), digest.to_owned()),
        _ => ("errorName".to_owned(), "errorRepoDigest".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_asked_of_the_runtime() {
        let state = |wanted: Wanted| {
            let filter = wanted.container_filter().map_err(|failure| failure.message())?;
            Ok::<_, Option<String>>(filter.state.map(|value| value.state))
        };
        let named = |state: &str| Wanted { state: state.to_owned(), ..Wanted::default() };
        assert_eq!(state(Wanted::default()), Ok(Some(ContainerState::ContainerRunning as i32)));
        assert_eq!(state(Wanted { all: true, ..Wanted::default() }), Ok(None));
        assert_eq!(state(Wanted { latest: true, ..Wanted::default() }), Ok(None));
        assert_eq!(state(named("EXITED")), Ok(Some(ContainerState::ContainerExited as i32)));
        assert!(state(named("bogus")).is_err() && named("bogus").pod_filter().is_err());
        assert_eq!(Wanted { latest: true, last: 3, ..Wanted::default() }.count(), 3);
    }

    #[test]
    fn images_meet_conditions() {
        let image = |id: &str, tag: &str| Image {
            id: id.to_owned(),
            repo_tags: if tag.is_empty() { Vec::new() } else { vec![format!("x/{tag}:1")] },
            repo_digests: vec![format!("x/{id}@sha256:{id}")],
            ..Image::default()
        };
        let all = || vec![image("a1", "one"), image("b2", "two"), image("c3", "")];
        let ids = |conditions: &str| {
            let conditions: Vec<String> = conditions.split(' ').map(str::to_owned).collect();
            let found = filtered(all(), &conditions).map_err(|failure| failure.message())?;
            Ok::<_, Option<String>>(
                found.into_iter().map(|image| image.id).collect::<Vec<_>>().join(" "),
            )
        };
        for (conditions, found) in [
            ("dangling=true", "c3"),
            ("dangling=false", "a1 b2"),
            ("reference=x/[ab]", "a1 b2"),
            ("since=b2", "a1"),
            ("before=b2", "c3"),
            ("since=x/two:1", "a1"),
            ("since=x/b2@sha256:b", "a1"),
            ("dangling=false reference=b", "b2"),
        ] {
            assert_eq!(ids(conditions).as_deref(), Ok(found), "{conditions}");
        }
        assert!(ids("bogus=1").is_err() && ids("reference=(").is_err());
        assert_eq!(repo_tags(&["y".to_owned()], "n")[0].0, "errorRepoTag");
        assert_eq!(repo_digest(&["y".to_owned()]).0, "errorName");
    }
}
