//! Two clusters are told the same, and what their control loops make of it is compared.
//!
//! `OURS` and `THEIRS` are kubeconfigs of two API servers, each with its own controller manager, the same
//! scheduler and as many played nodes (`bench -- hollow`). The script is a table of stories, each in a
//! namespace of its own: a user's acts, one after the other. After each act, what is in the namespace is
//! compared once nothing changes there any more, without names that chance gave, times, addresses and
//! revisions; after the last, so are the events. What differs for a reason is a row of `known.txt`.
mod compare;
mod known;
mod plain;
mod script;
mod server;

use compare::Difference;
use known::Known;
use script::{Act, STORIES, Story};
use server::Server;
use std::path::Path;
use std::sync::Arc;

/// Stories that are told at once.
const AT_ONCE: usize = 12;

pub fn run(ours: &Path, theirs: &Path, only: Option<&str>) -> Result<(), String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let servers = Arc::new([Server::reach(ours).await?, Server::reach(theirs).await?]);
        let wanted = |story: &&Story| only.is_none_or(|part| story.name.contains(part));
        let stories: Vec<&'static Story> = STORIES.iter().filter(wanted).collect();
        let room = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
        let mut told = Vec::new();
        for story in stories {
            let (servers, room) = (servers.clone(), room.clone());
            told.push(tokio::spawn(async move {
                let _place = room.acquire().await;
                (story, tell(&servers, story).await)
            }));
        }
        let (mut acts, mut compared, mut unknown, mut excused) = (0, 0, 0, 0);
        let known = Known::read();
        for one in told {
            let (story, (outcome, objects)) = one.await.map_err(|error| error.to_string())?;
            acts += story.acts().len();
            compared += objects;
            for (act, difference) in outcome {
                match known.reason(&difference) {
                    Some(_) => excused += 1,
                    None => {
                        unknown += 1;
                        println!("{} | {act} | {difference}", story.name);
                    }
                }
            }
        }
        println!(
            "{acts} acts in {} stories, {compared} objects compared: {unknown} differ without a known \
             reason, {excused} for one",
            STORIES.len()
        );
        match unknown {
            0 => Ok(()),
            _ => Err("the two differ".to_owned()),
        }
    })
}

/// Tells both the story; the differences with the act after which they were seen, and how many objects
/// were looked at.
async fn tell(servers: &[Server; 2], story: &'static Story) -> (Vec<(String, Difference)>, usize) {
    let (mut found, mut objects): (Vec<(String, Difference)>, usize) = (Vec::new(), 0);
    let acts = story.acts();
    for (at, act) in acts.iter().enumerate() {
        let (ours, theirs) = futures_util::future::join(
            servers[0].act(story.name, act),
            servers[1].act(story.name, act),
        )
        .await;
        if ours != theirs {
            found.push((format!("{} {act}", at + 1), Difference::answers(&ours, &theirs)));
        }
        // What somebody waits for is not there yet: nothing to compare.
        if matches!(act, Act::Pause(_)) {
            continue;
        }
        let mut differences = Vec::new();
        // Two clusters rest at different moments: what differs has a while to become alike.
        for patience in [1, 2, 4, 8] {
            let (ours, theirs) = futures_util::future::join(
                servers[0].rest(story.name),
                servers[1].rest(story.name),
            )
            .await;
            differences = compare::objects(&ours, &theirs);
            objects += ours.len();
            if differences.is_empty() {
                break;
            }
            #[allow(
                clippy::disallowed_methods,
                reason = "the clusters are others': nothing says when"
            )]
            tokio::time::sleep(std::time::Duration::from_secs(patience)).await;
        }
        // What is told once is not told after every act that follows.
        differences.retain(|it| !found.iter().any(|(_, before)| before == it));
        found.extend(differences.into_iter().map(|it| (format!("{} {act}", at + 1), it)));
    }
    let (ours, theirs) = (servers[0].events(story.name), servers[1].events(story.name));
    found.extend(compare::events(&ours, &theirs).into_iter().map(|it| ("events".to_owned(), it)));
    (found, objects)
}
