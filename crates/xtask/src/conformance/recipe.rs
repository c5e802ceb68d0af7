//! Images as recipes: what each is made of, one thing per line.
//!
//! ```text
//! name REFERENCE             what the suite calls it; several are several names
//! note WORDS                 how it differs from upstream's image: told in the report
//! from RECIPE                starts with that recipe's layers
//! package NAME…              Debian packages and all that they need
//! program NAME PATH [MODE]   a program that the Go module builds
//! compile FILE PATH          a C file of upstream's module, linked statically
//! file FILE PATH             a file of upstream's module
//! applets                    busybox's names that no package has taken
//! folder PATH MODE · link PATH TARGET · line PATH TEXT
//! entrypoint WORDS · command WORDS
//! ```
use std::path::PathBuf;

#[derive(Debug, Default, PartialEq)]
pub struct Recipe {
    pub title: String,
    pub names: Vec<String>,
    pub note: String,
    pub from: Option<String>,
    pub packages: Vec<String>,
    pub steps: Vec<Step>,
    pub entrypoint: Vec<String>,
    pub command: Vec<String>,
}

/// One thing to add, after the packages; paths are relative to the image's root.
#[derive(Debug, PartialEq)]
pub enum Step {
    Program { name: String, path: PathBuf, mode: u32 },
    Compile { source: PathBuf, path: PathBuf },
    File { source: PathBuf, path: PathBuf },
    Applets,
    Folder { path: PathBuf, mode: u32 },
    Link { path: PathBuf, target: String },
    Line { path: PathBuf, text: String },
}

pub fn parse(title: &str, text: &str) -> Result<Recipe, String> {
    let mut recipe = Recipe { title: title.to_owned(), ..Recipe::default() };
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    for line in lines {
        add(&mut recipe, line).ok_or_else(|| format!("{title}: not a line of a recipe: {line}"))?;
    }
    if recipe.names.is_empty() {
        return Err(format!("{title}: a recipe needs a name"));
    }
    Ok(recipe)
}

fn add(recipe: &mut Recipe, line: &str) -> Option<()> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let mut words = rest.split_whitespace();
    match word {
        "name" => recipe.names.push(words.next()?.to_owned()),
        "note" => recipe.note = rest.to_owned(),
        "from" => recipe.from = Some(words.next()?.to_owned()),
        "package" => recipe.packages.extend(words.map(str::to_owned)),
        "entrypoint" => recipe.entrypoint = split(rest),
        "command" => recipe.command = split(rest),
        _ => recipe.steps.push(step(word, rest)?),
    }
    Some(())
}

fn step(word: &str, rest: &str) -> Option<Step> {
    let mut words = rest.split_whitespace();
    let octal = |text: &str| u32::from_str_radix(text, 8).ok();
    Some(match word {
        "program" => Step::Program {
            name: words.next()?.to_owned(),
            path: inside(words.next()?)?,
            mode: words.next().map_or(Some(0o755), octal)?,
        },
        "compile" => Step::Compile { source: words.next()?.into(), path: inside(words.next()?)? },
        "file" => Step::File { source: words.next()?.into(), path: inside(words.next()?)? },
        "applets" => Step::Applets,
        "folder" => Step::Folder { path: inside(words.next()?)?, mode: octal(words.next()?)? },
        "link" => Step::Link { path: inside(words.next()?)?, target: words.next()?.to_owned() },
        "line" => {
            let (path, text) = rest.split_once(' ')?;
            Step::Line { path: inside(path)?, text: text.to_owned() }
        }
        _ => return None,
    })
}

/// A path in the image, made relative: it is joined to the folder where the image is put together.
fn inside(path: &str) -> Option<PathBuf> {
    path.strip_prefix('/').filter(|rest| !rest.split('/').any(|part| part == "..")).map(Into::into)
}

/// Words, where quotes hold some together.
fn split(text: &str) -> Vec<String> {
    let parts = text.split('"').enumerate();
    parts
        .flat_map(|(number, part)| match number % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_is_read_line_by_line() {
        let text = "
            # a comment
            name registry.k8s.io/pause:3
            package a b
            program nnp /bin/nnp 6755
            line /etc/group root:x:0:
            command nginx -g \"daemon off;\"";
        let recipe = parse("pause", text).expect("a recipe");
        assert_eq!(recipe.names, ["registry.k8s.io/pause:3"]);
        assert_eq!(recipe.packages, ["a", "b"]);
        assert_eq!(recipe.command, ["nginx", "-g", "daemon off;"]);
        let program = Step::Program { name: "nnp".into(), path: "bin/nnp".into(), mode: 0o6755 };
        let line = Step::Line { path: "etc/group".into(), text: "root:x:0:".into() };
        assert_eq!(recipe.steps, [program, line]);
    }

    #[test]
    fn what_is_no_recipe_is_named() {
        for (text, problem) in [
            ("name a\nprogramme b /b", "x: not a line of a recipe: programme b /b"),
            ("name a\nfolder /../etc 0755", "x: not a line of a recipe: folder /../etc 0755"),
            ("command a", "x: a recipe needs a name"),
        ] {
            assert_eq!(parse("x", text), Err(problem.to_owned()));
        }
    }

    #[test]
    fn every_recipe_of_ours_can_be_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/images");
        let recipes: Vec<Recipe> = std::fs::read_dir(folder)
            .expect("the folder of recipes")
            .map(|entry| {
                let path = entry.expect("an entry").path();
                let title = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                parse(&title, &std::fs::read_to_string(&path).expect("text")).expect("a recipe")
            })
            .collect();
        assert_eq!(recipes.iter().map(|recipe| recipe.names.len()).sum::<usize>(), 11);
    }
}
