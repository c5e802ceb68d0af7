//! A page of a kubelet's, `/metrics/resource`, as points of measurement.
use jiff::Timestamp;
use std::collections::BTreeMap;

/// What had been used when it was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub at: Timestamp,
    /// Since the start, which for a node is its boot.
    pub cpu_seconds: f64,
    pub memory_bytes: u64,
    /// When it started, in seconds; 0 where that is not told.
    pub started: f64,
}

/// A container, by its namespace, pod and name.
pub type ContainerKey = (String, String, String);

/// One look at a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    pub node: Option<Point>,
    pub containers: BTreeMap<ContainerKey, Point>,
}

/// Numbers of one thing, as they are found.
#[derive(Default)]
struct Half {
    at: Option<Timestamp>,
    cpu: Option<f64>,
    memory: Option<f64>,
    started: f64,
}

impl Half {
    fn whole(self, now: Timestamp) -> Option<Point> {
        Some(Point {
            at: self.at.unwrap_or(now),
            cpu_seconds: self.cpu.filter(|cpu| cpu.is_finite() && *cpu >= 0.0)?,
            memory_bytes: self.memory.filter(|memory| (0.0..1e18).contains(memory))? as u64,
            started: self.started,
        })
    }
}

impl Sample {
    /// Reads a page that was fetched now. Lines that mean nothing here, or nothing at all, are passed
    /// over; a thing of which only a half is told is left out.
    pub fn read(page: &str, now: Timestamp) -> Sample {
        let mut node = Half::default();
        let mut containers: BTreeMap<ContainerKey, Half> = BTreeMap::new();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let Some(Line { name, labels, value, at }) = Line::read(line) else { continue };
            let of_container = || {
                let label = |wanted| labels.get(wanted).cloned();
                Some((label("namespace")?, label("pod")?, label("container")?))
            };
            let half = match name.strip_prefix("container_") {
                Some(_) => match of_container() {
                    Some(key) => containers.entry(key).or_default(),
                    None => continue,
                },
                None => &mut node,
            };
            match name {
                "node_cpu_usage_seconds_total" | "container_cpu_usage_seconds_total" => {
                    half.cpu = Some(value);
                    half.at = at;
                }
                "node_memory_working_set_bytes" | "container_memory_working_set_bytes" => {
                    half.memory = Some(value);
                }
                "container_start_time_seconds" => half.started = value,
                _ => {}
            }
        }
        let whole = |(key, half): (ContainerKey, Half)| Some((key, half.whole(now)?));
        Sample {
            node: node.whole(now),
            containers: containers.into_iter().filter_map(whole).collect(),
        }
    }
}

/// `name{label="value",…} number [milliseconds]`.
struct Line<'a> {
    name: &'a str,
    labels: BTreeMap<&'a str, String>,
    value: f64,
    at: Option<Timestamp>,
}

impl Line<'_> {
    fn read(line: &str) -> Option<Line<'_>> {
        let end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => read_labels(rest)?,
            None => (BTreeMap::new(), rest),
        };
        let mut numbers = rest.split_whitespace();
        let value = numbers.next()?.parse().ok()?;
        let at = numbers.next().and_then(|text| text.parse().ok());
        let at = at.and_then(|milliseconds| Timestamp::from_millisecond(milliseconds).ok());
        Some(Line { name, labels, value, at })
    }
}

/// Labels up to their brace, and what follows it.
fn read_labels(mut rest: &str) -> Option<(BTreeMap<&str, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at,
                (_, '\\') => match letters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, letter) => value.push(letter),
            }
        };
        labels.insert(name, value);
        rest = &after[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(100).expect("a moment")
    }

    #[test]
    fn a_page_is_points_of_the_node_and_its_containers() {
        let page = "# HELP node_cpu_usage_seconds_total x
node_cpu_usage_seconds_total 12.5 90000
node_memory_working_set_bytes 1.024e+06 90000
container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\",pod=\"p\"} 3
container_memory_working_set_bytes{container=\"c\",namespace=\"n\",pod=\"p\"} 2048
container_start_time_seconds{container=\"c\",namespace=\"n\",pod=\"p\"} 50.5
container_cpu_usage_seconds_total{container=\"half\",namespace=\"n\",pod=\"p\"} 3
pod_cpu_usage_seconds_total{namespace=\"n\",pod=\"p\"} 3
scrape_error 0
";
        let sample = Sample::read(page, now());
        let node = sample.node.expect("a node");
        assert_eq!(
            (node.at.as_second(), node.cpu_seconds, node.memory_bytes),
            (90, 12.5, 1_024_000)
        );
        let key = ("n".to_owned(), "p".to_owned(), "c".to_owned());
        assert_eq!(sample.containers.keys().collect::<Vec<_>>(), [&key]);
        let point = sample.containers[&key];
        assert_eq!((point.at, point.memory_bytes, point.started), (now(), 2048, 50.5));
    }

    #[test]
    fn what_cannot_be_read_is_passed_over() {
        for line in [
            "",
            "x",
            "container_cpu_usage_seconds_total{",
            "container_cpu_usage_seconds_total{container=\"c",
            "container_cpu_usage_seconds_total{container=\"c\"} 1",
            "node_cpu_usage_seconds_total NaN",
            "node_cpu_usage_seconds_total -1\nnode_memory_working_set_bytes 1",
            "node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 1e300",
            "node_cpu_usage_seconds_total 1 99999999999999999999\n",
        ] {
            assert_eq!(Sample::read(line, now()), Sample::default(), "{line}");
        }
        let odd = r#"x{a="q\"\\\n",b=""} 7"#;
        let line = Line::read(odd).expect("a line");
        assert_eq!((line.labels["a"].as_str(), line.labels["b"].as_str()), ("q\"\\\n", ""));
    }
}
