//! The page, as it is in the binary.

#[derive(Debug)]
pub struct File {
    pub path: &'static str,
    pub content_type: &'static str,
    pub content: &'static [u8],
}

macro_rules! file {
    ($path:literal, $name:literal, $content_type:literal) => {
        File {
            path: $path,
            content_type: $content_type,
            content: include_bytes!(concat!("../page/", $name)),
        }
    };
}

pub const FILES: &[File] = &[
    file!("/", "index.html", "text/html; charset=utf-8"),
    file!("/style.css", "style.css", "text/css; charset=utf-8"),
    file!("/icon.svg", "icon.svg", "image/svg+xml"),
    file!("/app.js", "app.js", "text/javascript; charset=utf-8"),
    file!("/api.js", "api.js", "text/javascript; charset=utf-8"),
    file!("/page.js", "page.js", "text/javascript; charset=utf-8"),
    file!("/table.js", "table.js", "text/javascript; charset=utf-8"),
    file!("/object.js", "object.js", "text/javascript; charset=utf-8"),
    file!("/overview.js", "overview.js", "text/javascript; charset=utf-8"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_of_the_page_is_served_and_every_one_it_names_is_there() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
        let there: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().replace("index.html", ""))
            .collect();
        let served: BTreeSet<String> =
            FILES.iter().map(|file| file.path.trim_start_matches('/').to_owned()).collect();
        assert_eq!(there, served);
        for file in FILES {
            let text = String::from_utf8_lossy(file.content);
            let named = text.split("from \"./").skip(1).filter_map(|rest| rest.split('"').next());
            for name in named {
                assert!(served.contains(name), "{} names {name}", file.path);
            }
            // The page's policy forbids both, so neither would work.
            assert!(!text.contains("innerHTML") && !text.contains("<script>"), "{}", file.path);
        }
    }
}
