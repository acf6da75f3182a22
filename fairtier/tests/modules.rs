//! The modules of each crate form no cycle.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{Attribute, File, Item, ItemMod, UseTree, visit::Visit};

const CRATES: [&str; 11] = [
    "common",
    "plots",
    "models",
    "edge-client/trainer",
    "edge-client",
    "aggregator/strategies",
    "aggregator/coordinator",
    "aggregator",
    "sim",
    "bench",
    "fairtier",
];

/// From a top-level module to the modules it uses, each with a file that does so.
type Graph = BTreeMap<String, BTreeMap<String, PathBuf>>;

/// Collects the first name after `crate::` in every path and every `use` of a file.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl Names {
    /// Looks for `crate` at the start of a `use`.
    fn tree(&mut self, tree: &UseTree) {
        match tree {
            UseTree::Path(path) if path.ident == "crate" => self.first(&path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(tree)),
            _ => {}
        }
    }

    fn first(&mut self, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => drop(self.0.insert(path.ident.to_string())),
            UseTree::Name(name) => drop(self.0.insert(name.ident.to_string())),
            UseTree::Rename(rename) => drop(self.0.insert(rename.ident.to_string())),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.first(tree)),
            UseTree::Glob(_) => {}
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if segments.next().is_some_and(|segment| segment.ident == "crate")
            && let Some(segment) = segments.next()
        {
            self.0.insert(segment.ident.to_string());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    let test = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    };
    attributes.iter().any(test)
}

fn parse(path: &Path) -> File {
    let text = fs::read_to_string(path).expect("a readable file");
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The file of module `name` below `dir`, if it has one.
fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let candidates = [dir.join(format!("{name}.rs")), dir.join(name).join("mod.rs")];
    candidates.into_iter().find(|path| path.is_file())
}

/// Visits `file` and the files of its submodules, without tests.
fn walk(path: &Path, below: &Path, each: &mut impl FnMut(&Path, &File)) {
    let file = parse(path);
    each(path, &file);
    for item in &file.items {
        if let Item::Mod(item) = item
            && item.content.is_none()
            && !is_test(&item.attrs)
            && let name = item.ident.to_string()
            && let Some(path) = find(below, &name)
        {
            walk(&path, &below.join(name), each);
        }
    }
}

/// From a name that the crate's root re-exports to its module.
fn exports(root: &File) -> BTreeMap<String, String> {
    fn names(tree: &UseTree, module: &str, found: &mut BTreeMap<String, String>) {
        match tree {
            UseTree::Path(path) => names(&path.tree, module, found),
            UseTree::Name(name) => drop(found.insert(name.ident.to_string(), module.to_owned())),
            UseTree::Rename(rename) => drop(found.insert(rename.rename.to_string(), module.to_owned())),
            UseTree::Group(group) => group.items.iter().for_each(|tree| names(tree, module, found)),
            UseTree::Glob(_) => drop(found.insert("*".to_owned(), module.to_owned())),
        }
    }
    let mut found = BTreeMap::new();
    for item in &root.items {
        if let Item::Use(item) = item
            && let UseTree::Path(path) = &item.tree
        {
            names(&path.tree, &path.ident.to_string(), &mut found);
        }
    }
    found
}

fn graph(src: &Path) -> Graph {
    let root = parse(&src.join("lib.rs"));
    let exports = exports(&root);
    let declared = root.items.iter().filter_map(|item| match item {
        Item::Mod(item) if !is_test(&item.attrs) => Some(item.ident.to_string()),
        _ => None,
    });
    let modules: BTreeSet<String> = declared.collect();
    let mut graph = Graph::new();
    for module in &modules {
        let Some(path) = find(src, module) else { continue };
        let uses = graph.entry(module.clone()).or_default();
        walk(&path, &src.join(module), &mut |path, file| {
            let mut names = Names::default();
            names.visit_file(file);
            for name in names.0 {
                let known = if modules.contains(&name) { Some(&name) } else { exports.get(&name) };
                let target = known.or_else(|| exports.get("*"));
                if let Some(target) = target.filter(|target| *target != module) {
                    uses.entry(target.clone()).or_insert_with(|| path.to_owned());
                }
            }
        });
    }
    graph
}

/// A cycle of modules, if there is one.
fn cycle(graph: &Graph) -> Option<Vec<String>> {
    fn follow(graph: &Graph, at: &str, trail: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        if let Some(first) = trail.iter().position(|name| name == at) {
            trail.drain(..first);
            return true;
        }
        if !done.insert(at.to_owned()) {
            return false;
        }
        trail.push(at.to_owned());
        for next in graph.get(at).into_iter().flat_map(BTreeMap::keys) {
            if follow(graph, next, trail, done) {
                return true;
            }
        }
        trail.pop();
        false
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|start| {
        let mut trail = Vec::new();
        follow(graph, start, &mut trail, &mut done).then_some(trail)
    })
}

#[test]
fn modules_of_a_crate_do_not_use_each_other_in_a_cycle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut cycles = Vec::new();
    for name in CRATES {
        let graph = graph(&root.join(name).join("src"));
        assert!(!graph.is_empty(), "{name} has modules");
        if let Some(ring) = cycle(&graph) {
            let next = ring.iter().cycle().skip(1);
            let edge = |(from, to): (&String, &String)| format!("{to} ({})", graph[from][to].display());
            let edges: Vec<_> = ring.iter().zip(next).map(edge).collect();
            cycles.push(format!("{name}: {} -> {}", ring[0], edges.join(" -> ")));
        }
    }
    assert!(cycles.is_empty(), "modules that use each other in a cycle:\n{}", cycles.join("\n"));
}

#[test]
fn a_cycle_is_found() {
    let edge = |to: &str| BTreeMap::from([(to.to_owned(), PathBuf::new())]);
    let ring = Graph::from([("a".into(), edge("b")), ("b".into(), edge("c")), ("c".into(), edge("b"))]);
    assert_eq!(cycle(&ring), Some(vec!["b".to_owned(), "c".to_owned()]));
    let line = Graph::from([("a".into(), edge("b")), ("b".into(), edge("c")), ("c".into(), BTreeMap::new())]);
    assert_eq!(cycle(&line), None);
}
