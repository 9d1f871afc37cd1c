//! The files of a cluster that grows, and files that are refused.

use super::*;

#[test]
fn a_cluster_grows_and_its_files_fit_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("cluster");
    assert!(ControllerFile::read(&folder).unwrap().is_none());
    let entropy = strongroom_base::OsEntropy;
    let address: SocketAddr = "10.0.0.1:7420".parse().unwrap();
    let one = [("one".to_owned(), address)];
    ControllerFile::add(&folder, &one, None, &entropy).unwrap();
    let two = [("two".to_owned(), address)];
    let written = ControllerFile::add(&folder, &two, None, &entropy).unwrap();
    assert_eq!(written, [folder.join("two.json")]);
    let controller = ControllerFile::read(&folder).unwrap().unwrap();
    assert_eq!(controller.nodes.len(), 2);
    for node in &controller.nodes {
        let file = NodeFile::read(&folder.join(format!("{}.json", node.name))).unwrap();
        assert_eq!((&file.name, file.id, file.key.0), (&node.name, node.id, node.key.0));
        assert_eq!(file.controller.0, controller.controller.public().0);
        assert_eq!(file.group.0, controller.group.0);
    }
    let error = ControllerFile::add(&folder, &one, None, &entropy);
    assert!(matches!(error, Err(FilesError::Taken { .. })));
    let group = Some("[ff05::7420]:7420".parse().unwrap());
    let three = [("three".to_owned(), "[fd00::3]:7420".parse().unwrap())];
    let error = ControllerFile::add(&folder, &three, group, &entropy);
    assert!(matches!(error, Err(FilesError::Families { name, .. }) if name == "one"));
    ControllerFile::add(&folder, &three, None, &entropy).unwrap();
    let path = folder.join("one.json");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(NodeFile::read(&path), Err(FilesError::Open(_))));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&path, "{}").unwrap();
    assert!(matches!(NodeFile::read(&path), Err(FilesError::Form { .. })));
}
