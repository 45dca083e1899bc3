use super::*;

#[test]
fn headers_of_old_and_new_numpy_are_read() {
    let int = ElementType::parse("<i8").unwrap();
    let read = parse_header("{'descr': '<i8', 'fortran_order': False, 'shape': (2, 30), }  \n");
    assert_eq!(read, Some((int, false, vec![2, 30])));
    assert_eq!(parse_header("{'shape': (5L,), 'fortran_order': True, 'descr': '<i8'}"), Some((int, true, vec![5])));
    assert_eq!(parse_header("{'descr': '<i8', 'fortran_order': False, 'shape': ()}"), Some((int, false, vec![])));
    assert_eq!(parse_header("{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': ()}"), None);
    assert_eq!(parse_header("{'descr': '<i8', 'fortran_order': False, 'shape': (-1,)}"), None);
}
