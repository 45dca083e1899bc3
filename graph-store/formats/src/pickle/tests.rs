//! Pickles that are read and pickles that are refused.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::sparse::SparseRows;

/// The matrix [[0, 0, 0.5], [-1, 0, 0]] as Python 3 pickles it, by protocol.
#[rustfmt::skip]
const CSR: [&[u8]; 5] = [
    b"ccopy_reg\n_reconstructor\np0\n(cscipy.sparse.csr\ncsr_matrix\np1\nc__builtin__\nobject\np2\nNtp3\nRp4\n(dp5\nVformat\np6\nVcsr\np7\nsV_shape\np8\n(I2\nI3\ntp9\nsVindptr\np10\ncnumpy.core.multiarray\n_reconstruct\np11\n(cnumpy\nndarray\np12\n(I0\ntp13\nc_codecs\nencode\np14\n(Vb\np15\nVlatin1\np16\ntp17\nRp18\ntp19\nRp20\n(I1\n(I3\ntp21\ncnumpy\ndtype\np22\n(Vi4\np23\nI0\nI1\ntp24\nRp25\n(I3\nV<\np26\nNNNI-1\nI-1\nI0\ntp27\nbI00\ng14\n(V\\u0000\\u0000\\u0000\\u0000\x01\\u0000\\u0000\\u0000\x02\\u0000\\u0000\\u0000\np28\ng16\ntp29\nRp30\ntp31\nbsVindices\np32\ng11\n(g12\ng13\ng18\ntp33\nRp34\n(I1\n(I2\ntp35\ng22\n(g23\nI0\nI1\ntp36\nRp37\ng27\nbI00\ng14\n(V\x02\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\np38\ng16\ntp39\nRp40\ntp41\nbsVdata\np42\ng11\n(g12\ng13\ng18\ntp43\nRp44\n(I1\n(I2\ntp45\ng22\n(Vf8\np46\nI0\nI1\ntp47\nRp48\ng27\nbI00\ng14\n(V\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\xe0?\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\xf0\xbf\np49\ng16\ntp50\nRp51\ntp52\nbsb.",
    b"ccopy_reg\n_reconstructor\nq\x00(cscipy.sparse.csr\ncsr_matrix\nq\x01c__builtin__\nobject\nq\x02Ntq\x03Rq\x04}q\x05(X\x06\x00\x00\x00formatq\x06X\x03\x00\x00\x00csrq\x07X\x06\x00\x00\x00_shapeq\x08(K\x02K\x03tq\x09X\x06\x00\x00\x00indptrq\ncnumpy.core.multiarray\n_reconstruct\nq\x0b(cnumpy\nndarray\nq\x0c(K\x00tq\x0dc_codecs\nencode\nq\x0e(X\x01\x00\x00\x00bq\x0fX\x06\x00\x00\x00latin1q\x10tq\x11Rq\x12tq\x13Rq\x14(K\x01(K\x03tq\x15cnumpy\ndtype\nq\x16(X\x02\x00\x00\x00i4q\x17K\x00K\x01tq\x18Rq\x19(K\x03X\x01\x00\x00\x00<q\x1aNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x1bbI00\nh\x0e(X\x0c\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00q\x1ch\x10tq\x1dRq\x1etq\x1fbX\x07\x00\x00\x00indicesq h\x0b(h\x0ch\x0dh\x12tq!Rq\"(K\x01(K\x02tq#h\x16(h\x17K\x00K\x01tq$Rq%h\x1bbI00\nh\x0e(X\x08\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00q&h\x10tq'Rq(tq)bX\x04\x00\x00\x00dataq*h\x0b(h\x0ch\x0dh\x12tq+Rq,(K\x01(K\x02tq-h\x16(X\x02\x00\x00\x00f8q.K\x00K\x01tq/Rq0h\x1bbI00\nh\x0e(X\x13\x00\x00\x00\x00\x00\x00\x00\x00\x00\xc3\xa0?\x00\x00\x00\x00\x00\x00\xc3\xb0\xc2\xbfq1h\x10tq2Rq3tq4bub.",
    b"\x80\x02cscipy.sparse.csr\ncsr_matrix\nq\x00)\x81q\x01}q\x02(X\x06\x00\x00\x00formatq\x03X\x03\x00\x00\x00csrq\x04X\x06\x00\x00\x00_shapeq\x05K\x02K\x03\x86q\x06X\x06\x00\x00\x00indptrq\x07cnumpy.core.multiarray\n_reconstruct\nq\x08cnumpy\nndarray\nq\x09K\x00\x85q\nc_codecs\nencode\nq\x0bX\x01\x00\x00\x00bq\x0cX\x06\x00\x00\x00latin1q\x0d\x86q\x0eRq\x0f\x87q\x10Rq\x11(K\x01K\x03\x85q\x12cnumpy\ndtype\nq\x13X\x02\x00\x00\x00i4q\x14K\x00K\x01\x87q\x15Rq\x16(K\x03X\x01\x00\x00\x00<q\x17NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x18b\x89h\x0bX\x0c\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00q\x19h\x0d\x86q\x1aRq\x1btq\x1cbX\x07\x00\x00\x00indicesq\x1dh\x08h\x09h\nh\x0f\x87q\x1eRq\x1f(K\x01K\x02\x85q h\x13h\x14K\x00K\x01\x87q!Rq\"h\x18b\x89h\x0bX\x08\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00q#h\x0d\x86q$Rq%tq&bX\x04\x00\x00\x00dataq'h\x08h\x09h\nh\x0f\x87q(Rq)(K\x01K\x02\x85q*h\x13X\x02\x00\x00\x00f8q+K\x00K\x01\x87q,Rq-h\x18b\x89h\x0bX\x13\x00\x00\x00\x00\x00\x00\x00\x00\x00\xc3\xa0?\x00\x00\x00\x00\x00\x00\xc3\xb0\xc2\xbfq.h\x0d\x86q/Rq0tq1bub.",
    b"\x80\x03cscipy.sparse.csr\ncsr_matrix\nq\x00)\x81q\x01}q\x02(X\x06\x00\x00\x00formatq\x03X\x03\x00\x00\x00csrq\x04X\x06\x00\x00\x00_shapeq\x05K\x02K\x03\x86q\x06X\x06\x00\x00\x00indptrq\x07cnumpy.core.multiarray\n_reconstruct\nq\x08cnumpy\nndarray\nq\x09K\x00\x85q\nC\x01bq\x0b\x87q\x0cRq\x0d(K\x01K\x03\x85q\x0ecnumpy\ndtype\nq\x0fX\x02\x00\x00\x00i4q\x10K\x00K\x01\x87q\x11Rq\x12(K\x03X\x01\x00\x00\x00<q\x13NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x14b\x89C\x0c\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00q\x15tq\x16bX\x07\x00\x00\x00indicesq\x17h\x08h\x09h\nh\x0b\x87q\x18Rq\x19(K\x01K\x02\x85q\x1ah\x0fh\x10K\x00K\x01\x87q\x1bRq\x1ch\x14b\x89C\x08\x02\x00\x00\x00\x00\x00\x00\x00q\x1dtq\x1ebX\x04\x00\x00\x00dataq\x1fh\x08h\x09h\nh\x0b\x87q Rq!(K\x01K\x02\x85q\"h\x0fX\x02\x00\x00\x00f8q#K\x00K\x01\x87q$Rq%h\x14b\x89C\x10\x00\x00\x00\x00\x00\x00\xe0?\x00\x00\x00\x00\x00\x00\xf0\xbfq&tq'bub.",
    b"\x80\x04\x95e\x01\x00\x00\x00\x00\x00\x00\x8c\x10scipy.sparse.csr\x94\x8c\ncsr_matrix\x94\x93\x94)\x81\x94}\x94(\x8c\x06format\x94\x8c\x03csr\x94\x8c\x06_shape\x94K\x02K\x03\x86\x94\x8c\x06indptr\x94\x8c\x15numpy.core.multiarray\x94\x8c\x0c_reconstruct\x94\x93\x94\x8c\x05numpy\x94\x8c\x07ndarray\x94\x93\x94K\x00\x85\x94C\x01b\x94\x87\x94R\x94(K\x01K\x03\x85\x94h\x0d\x8c\x05dtype\x94\x93\x94\x8c\x02i4\x94K\x00K\x01\x87\x94R\x94(K\x03\x8c\x01<\x94NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t\x94b\x89C\x0c\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x94t\x94b\x8c\x07indices\x94h\x0ch\x0fh\x10h\x11\x87\x94R\x94(K\x01K\x02\x85\x94h\x16h\x17K\x00K\x01\x87\x94R\x94h\x1bb\x89C\x08\x02\x00\x00\x00\x00\x00\x00\x00\x94t\x94b\x8c\x04data\x94h\x0ch\x0fh\x10h\x11\x87\x94R\x94(K\x01K\x02\x85\x94h\x16\x8c\x02f8\x94K\x00K\x01\x87\x94R\x94h\x1bb\x89C\x10\x00\x00\x00\x00\x00\x00\xe0?\x00\x00\x00\x00\x00\x00\xf0\xbf\x94t\x94bub.",
];

/// The dict {0: [1, -2], 70000: [2**40], 3: []} as Python 3 pickles it, by protocol.
#[rustfmt::skip]
const GRAPH: [&[u8]; 5] = [
    b"ccollections\ndefaultdict\np0\n(c__builtin__\nlist\np1\ntp2\nRp3\nI0\n(lp4\nI1\naI-2\nasI70000\n(lp5\nL1099511627776L\nasI3\n(lp6\ns.",
    b"ccollections\ndefaultdict\nq\x00(c__builtin__\nlist\nq\x01tq\x02Rq\x03(K\x00]q\x04(K\x01J\xfe\xff\xff\xffeJp\x11\x01\x00]q\x05L1099511627776L\naK\x03]q\x06u.",
    b"\x80\x02ccollections\ndefaultdict\nq\x00c__builtin__\nlist\nq\x01\x85q\x02Rq\x03(K\x00]q\x04(K\x01J\xfe\xff\xff\xffeJp\x11\x01\x00]q\x05\x8a\x06\x00\x00\x00\x00\x00\x01aK\x03]q\x06u.",
    b"\x80\x03ccollections\ndefaultdict\nq\x00cbuiltins\nlist\nq\x01\x85q\x02Rq\x03(K\x00]q\x04(K\x01J\xfe\xff\xff\xffeJp\x11\x01\x00]q\x05\x8a\x06\x00\x00\x00\x00\x00\x01aK\x03]q\x06u.",
    b"\x80\x04\x95Z\x00\x00\x00\x00\x00\x00\x00\x8c\x0bcollections\x94\x8c\x0bdefaultdict\x94\x93\x94\x8c\x08builtins\x94\x8c\x04list\x94\x93\x94\x85\x94R\x94(K\x00]\x94(K\x01J\xfe\xff\xff\xffeJp\x11\x01\x00]\x94\x8a\x06\x00\x00\x00\x00\x00\x01aK\x03]\x94u.",
];

fn matrix(bytes: &[u8]) -> Result<SparseRows> {
    let pickle = read(Path::new("matrix"), bytes)?;
    pickle.csr(pickle.unwrap_object(pickle.root), "the matrix")
}

fn edges(bytes: &[u8]) -> Result<Vec<(i64, i64)>> {
    let mut edges = vec![];
    let pickle = read(Path::new("graph"), bytes)?;
    pickle.adjacency(pickle.root, "the graph", |u, v| {
        edges.push((u, v));
        Ok(())
    })?;
    Ok(edges)
}

#[test]
fn every_protocol_gives_the_same_matrix_and_graph() {
    let expected = SparseRows::new([2, 3], vec![0, 1, 2], vec![2, 0], vec![0.5, -1.0]).unwrap();
    for (protocol, (csr, graph)) in CSR.iter().zip(GRAPH).enumerate() {
        assert_eq!(matrix(csr).unwrap(), expected, "protocol {protocol}");
        assert_eq!(edges(graph).unwrap(), [(0, 1), (0, -2), (70000, 1 << 40)], "protocol {protocol}");
    }
}

#[test]
fn python_2_writes_plain_dicts_and_strings_in_protocol_0() {
    assert_eq!(edges(b"(dp0\nI0\n(lp1\nI1\naL2L\nasI1\n(I0\nI3\nls.").unwrap(), [(0, 1), (0, 2), (1, 0), (1, 3)]);
    assert_eq!(text::unescape(br"'a\x00\n\\\'b'", true), Some(b"a\0\n\\'b".to_vec()));
    assert_eq!(text::unescape(b"a\\u0100\xe9\\x", false), Some("a\u{100}\u{e9}\\x".as_bytes().to_vec()));
    for bad in [&br"'open"[..], br"plain", br"'\x0'", br"'\'", b"", b"'"] {
        assert_eq!(text::unescape(bad, true), None, "{bad:?}");
    }
}

#[track_caller]
fn check_refused(bytes: &[u8], what: &str) {
    let error = read(Path::new("file"), bytes).unwrap_err().to_string();
    assert!(error.contains(what) && error.contains("; "), "{error:?} does not say {what:?}");
}

#[test]
fn everything_that_is_not_listed_is_refused_with_its_offset() {
    check_refused(
        b"cos\nsystem\n(S'true'\ntR.",
        "file, byte 0: the pickle asks for the class \"os.system\", which is refused",
    );
    check_refused(b"}cbuiltins\neval\n.", "file, byte 1: the pickle asks for the class \"builtins.eval\"");
    check_refused(b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "byte 14: the pickle asks for the class \"os.system\"");
    check_refused(b"cnumpy\nload\n.", "\"numpy.load\"");
    check_refused(b"cnumpy\nndarray\n)R.", "a call of Ndarray with arguments it does not take");
    check_refused(
        b"ccopy_reg\n_reconstructor\n(c__builtin__\nobject\nc__builtin__\nobject\nNtR.",
        "a call of Reconstructor",
    );
    check_refused(b"(icos\nsystem\n.", "byte 1: instruction 0x69 is not of a pickle of arrays");
    check_refused(b"Pid\n.", "instruction 0x50");
    check_refused(b"\x80\x05N.", "pickle protocol 5 is newer than 4");
    check_refused(b"cnumpy\ndtype\n(S'O4,x'\ntR.", "the dtype \"O4,x\" is refused");
    check_refused(b"K\x01K\x02R.", "a call of something that is not a class");
    check_refused(b"}}b.", "state of an unknown layout");
}

#[test]
fn impossible_pickles_are_refused() {
    check_refused(b"", "byte 0: the pickle ends within an instruction");
    check_refused(b".", "the stack is empty");
    check_refused(b"T\xff\xff\xff\x7fabc.", "needs 2147483647 more bytes");
    check_refused(b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", "more bytes");
    check_refused(b"I12", "ends within a line");
    check_refused(b"Ix\n.", "\"x\" is not an integer of 64 bits");
    check_refused(b"\x8a\x09123456789.", "an integer of more than 64 bits");
    check_refused(b"K\x01(\x85.", "the stack is empty");
    check_refused(b"K\x01t.", "the mark is missing");
    check_refused(b"h\x05.", "memo 5 was never set");
    check_refused(b"}K\x01a.", "items for something that is not a list");
    check_refused(b"](K\x01K\x02u.", "entries for something that is not a dict");
    check_refused(b"}(K\x01u.", "entries for something that is not a dict");
}

#[test]
fn a_list_that_holds_itself_is_no_graph_and_no_loop() {
    let error = edges(b"}q\x00K\x01]q\x01h\x01as.").unwrap_err().to_string();
    assert!(error.contains("lists something other than ints"), "{error}");
    assert!(matrix(b"\x80\x02].").unwrap_err().to_string().contains("is not a scipy csr_matrix"));
}

proptest! {
    /// Altered pickles end in an error or a checked value: never in a panic or a huge allocation.
    #[test]
    fn altered_pickles_never_panic(
        protocol in 0usize..5,
        changes in proptest::collection::vec((0usize..2000, any::<u8>()), 1..6),
        cut in 0usize..2000,
    ) {
        for original in [CSR[protocol], GRAPH[protocol]] {
            let mut bytes = original.to_vec();
            for &(at, value) in &changes {
                let at = at % bytes.len();
                bytes[at] = value;
            }
            let _ = (matrix(&bytes), edges(&bytes));
            bytes.truncate(cut % (bytes.len() + 1));
            let _ = (matrix(&bytes), edges(&bytes));
        }
    }

    /// So do bytes that never were a pickle.
    #[test]
    fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = (matrix(&bytes), edges(&bytes));
    }
}
