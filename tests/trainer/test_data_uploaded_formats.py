r"""Uploaded files of every format: what is in a whole one is found, and whatever isn't a whole, plain one is refused."""

from __future__ import annotations

import gzip
import io
import pickle
import stat
import struct
import zipfile
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pytest

from tests.trainer.uploaded_files import COMPLEX, RNG, WHOLE, csv, hdf5_file, mat, npz, recording, wav_zip
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.formats import FORMATS, FormatName, base, declared, hdf5, packed, recognised


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a file without a telling name."""
    return tmp_path / "upload"


@pytest.mark.parametrize("which", WHOLE)
def test_a_whole_file_is_recognised_and_its_arrays_are_told_as_they_are_read(path: Path, which: str) -> None:
    name, make, expected = WHOLE[which]
    make(path)
    assert recognised(path) == name
    contents = declared(path, name).inspect(path)
    assert {array.name: (array.shape, array.dtype) for array in contents.arrays} == expected
    arrays = FORMATS[name].arrays(path, list(expected))
    assert {key: array.shape for key, array in arrays.items()} == {key: shape for key, (shape, _) in expected.items()}


@pytest.mark.parametrize("which", ["npz", "hdf5", "mat", "mat 7.3"])
def test_complex_values_come_back_as_they_were_stored(path: Path, which: str) -> None:
    name, make, expected = WHOLE[which]
    make(path)
    first = next(iter(expected))
    assert np.array_equal(FORMATS[name].arrays(path, [first])[first], COMPLEX)


def test_a_table_gives_numbers_and_words(path: Path) -> None:
    csv(path)
    arrays = FORMATS["csv"].arrays(path, ["height", "place"])
    assert np.array_equal(arrays["height"], COMPLEX.real[:, 0].astype(np.float64))
    assert arrays["place"].tolist() == ["clinic 0", "clinic 1"] * 3


def test_a_volume_is_what_another_reader_makes_of_it_scaling_included(path: Path, tmp_path: Path) -> None:
    image = nibabel.Nifti1Image(RNG.normal(size=(3, 2, 2)), np.eye(4))
    image.set_data_dtype(np.int16)
    nibabel.save(image, tmp_path / "volume.nii")
    path.write_bytes((tmp_path / "volume.nii").read_bytes())
    own = FORMATS["nifti"].arrays(path, ["volume"])["volume"]
    assert np.allclose(own, nibabel.load(tmp_path / "volume.nii").get_fdata(), rtol=1e-6, atol=0)
    assert own.dtype.name == FORMATS["nifti"].inspect(path).arrays[0].dtype == "float64"


@pytest.mark.parametrize("which", [which for which in WHOLE if which != "csv"])
@pytest.mark.parametrize("share", [0.2, 0.6, 0.98])
def test_a_file_that_is_cut_off_is_refused(path: Path, which: str, share: float) -> None:
    name, make, _ = WHOLE[which]
    make(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InvalidParameter):
        declared(path, name).inspect(path)


@pytest.mark.parametrize("which", ["npz", "idx gzipped", "nifti 2 gzipped", "hdf5"])
def test_a_packed_file_with_a_changed_byte_is_refused_or_holds_the_same_arrays(path: Path, which: str) -> None:
    name, make, _ = WHOLE[which]
    make(path)
    content = bytearray(path.read_bytes())
    before = FORMATS[name].inspect(path)
    for place in range(0, len(content), max(1, len(content) // 40)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            found = declared(path, name).inspect(path)
        except InvalidParameter:
            continue
        assert len(found.arrays) <= len(before.arrays) + 1


@pytest.mark.parametrize("which", WHOLE)
def test_another_format_than_the_declared_one_is_refused(path: Path, which: str) -> None:
    name, make, _ = WHOLE[which]
    make(path)
    for other in FORMATS:
        if other != name:
            with pytest.raises(InvalidParameter, match=f"format must be the format of the file's content, {name}"):
                declared(path, other)


@pytest.mark.parametrize("content", [b"", b"\x00", pickle.dumps({"x": 1}), b"\x1f\x8b", b"PK\x03\x04", bytes(range(256)) * 8])
def test_what_is_in_no_format_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(InvalidParameter, match="which is none of npz, npy"):
        declared(path, "npz")


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, at: Path) -> None:
        self.at = at

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (str(self.at), "w"))


@pytest.mark.parametrize("name", ["npy", "npz"])
def test_objects_are_never_unpickled(path: Path, tmp_path: Path, name: FormatName) -> None:
    objects = np.array([Touch(tmp_path / "touched")], dtype=object)
    with path.open("wb") as file:
        (np.save if name == "npy" else np.savez)(file, objects)
    for attempt in (FORMATS[name].inspect, lambda place: FORMATS[name].arrays(place, ["array" if name == "npy" else "arr_0"])):
        with pytest.raises(InvalidParameter, match="Python objects are never unpickled"):
            attempt(path)
    assert not (tmp_path / "touched").exists()


def test_a_pickle_in_an_archive_under_an_arrays_name_is_refused(path: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", pickle.dumps(Touch(tmp_path / "touched")))
    with pytest.raises(InvalidParameter, match="a whole NumPy archive"):
        declared(path, "npz").inspect(path)
    assert not (tmp_path / "touched").exists()


def header(shape: object, descr: str = "<f8") -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (header((2**40,)) + bytes(64), "at most 4294967296 bytes unpacked"),
        (header((100,)) + bytes(64), "fewer bytes than its header says"),
        (header((1,)) + bytes(64), "more bytes than its header says"),
        (header((2,), "|V8") + bytes(16), "plain numbers or text"),
        (header((-1, -1)), "an array of 2 axes"),
        (b"\x93NUMPY\x03\x00", "version"),
        (b"\x93NUMPY\x01\x00\x10\x00{'a': __import__(", "a whole NumPy file"),
    ],
)
def test_a_forged_header_is_refused_before_anything_is_allocated(path: Path, content: bytes, told: str) -> None:
    path.write_bytes(content)
    for attempt in (FORMATS["npy"].inspect, lambda place: FORMATS["npy"].arrays(place, ["array"])):
        if "more bytes" in told and attempt != FORMATS["npy"].inspect:
            continue  # reading the array takes what it needs
        with pytest.raises(InvalidParameter, match=told):
            attempt(path)


def zipped(path: Path, members: dict[str, bytes], mode: int = 0o100600) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(info, content)


@pytest.mark.parametrize("name", ["../x.wav", "/etc/x.wav", "a/../../x.wav", "C:/x.wav", "a\\..\\x.wav", "a\n.wav"])
def test_names_that_leave_the_archive_are_refused(path: Path, name: str) -> None:
    zipped(path, {"a/x.wav": recording(), name: recording()})
    with pytest.raises(InvalidParameter, match="names stay inside it"):
        declared(path, "wav_zip").inspect(path)


@pytest.mark.parametrize("mode", [stat.S_IFLNK | 0o777, stat.S_IFIFO | 0o600, stat.S_IFCHR | 0o600])
def test_links_and_devices_in_an_archive_are_refused(path: Path, mode: int) -> None:
    zipped(path, {"a/x.wav": b"/etc/passwd"}, mode)
    with pytest.raises(InvalidParameter, match="no links, no devices"):
        declared(path, "wav_zip").inspect(path)


@pytest.mark.parametrize("inner", ["inner.zip", "x.txt", "x.py"])
def test_an_archive_in_an_archive_and_other_files_are_refused(path: Path, inner: str) -> None:
    zipped(path, {"a/x.wav": recording(), f"b/{inner}": b"PK\x03\x04"})
    with pytest.raises(InvalidParameter, match="a ZIP archive of WAV files"):
        declared(path, "wav_zip").inspect(path)


def test_an_encrypted_archive_is_refused(path: Path) -> None:
    zipped(path, {"a/x.wav": recording()})
    content = bytearray(path.read_bytes())
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + place] |= 1
    path.write_bytes(content)
    with pytest.raises(InvalidParameter, match="without encrypted files"):
        declared(path, "wav_zip").inspect(path)


def test_a_file_without_a_name_is_refused(path: Path) -> None:
    zipped(path, {"x.npy": header((0,)), "y.npy": header((0,))})
    content = path.read_bytes()
    place = content.rindex(b"PK\x01\x02")
    unnamed = content[place : place + 28] + b"\0\0" + content[place + 30 : place + 46]
    tail = bytearray(content[content.index(b"PK\x05\x06") :])
    first = content.index(b"PK\x01\x02")
    tail[12:16] = struct.pack("<I", place - first + len(unnamed))
    path.write_bytes(content[:place] + unnamed + bytes(tail))
    with pytest.raises(InvalidParameter, match="an archive that can't be read"):
        declared(path, "npz").inspect(path)


def test_a_name_that_is_in_an_archive_twice_is_refused(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header((0,)))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x.npy", header((0,)))
    with pytest.raises(InvalidParameter, match="different names"):
        declared(path, "npz").inspect(path)


def test_a_size_that_deflate_cannot_reach_is_refused(path: Path) -> None:
    zipped(path, {"x.npy": header((1000,)) + bytes(8000)})
    content = bytearray(path.read_bytes())
    place = content.index(b"PK\x01\x02")
    content[place + 24 : place + 28] = struct.pack("<I", 2**31)
    path.write_bytes(content)
    with pytest.raises(InvalidParameter, match="sizes that its compression can reach"):
        declared(path, "npz").inspect(path)


def test_files_that_lie_over_each_other_are_refused(path: Path) -> None:
    """The second file is a part of the first one's bytes, so that a small archive could hold one large file many times."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inner.npy", header((256,), "|u1") + RNG.bytes(256))
    whole = path.read_bytes()
    place = whole.index(b"PK\x01\x02")
    record, entry = whole[:place], bytearray(whole[place : whole.index(b"PK\x05\x06")])
    start = header((len(record),), "|u1")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("outer.npy", start + record)
    whole = path.read_bytes()
    place, end = whole.rindex(b"PK\x01\x02"), whole.rindex(b"PK\x05\x06")
    entry[42:46] = struct.pack("<I", 30 + len("outer.npy") + len(start))
    entries = whole[place:end] + bytes(entry)
    path.write_bytes(whole[:place] + entries + struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 2, 2, len(entries), place, 0))
    with pytest.raises(InvalidParameter, match=r"fit into its \d+ bytes without overlapping|\(BadZipFile\)"):
        declared(path, "npz").inspect(path)


def test_a_bomb_is_refused_by_what_it_unpacks_to(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MOST_UNPACKED", 2**20)
    monkeypatch.setattr(base, "MOST_UNPACKED", 2**20)
    zipped(path, {f"{number}.npy": header((2**14,)) + bytes(2**17) for number in range(9)})
    with pytest.raises(InvalidParameter, match="at most 1048576 bytes unpacked"):
        declared(path, "npz").inspect(path)
    path.write_bytes(gzip.compress(struct.pack(">4B1I", 0, 0, 0x08, 1, 2**21) + bytes(2**21)))
    with pytest.raises(InvalidParameter, match="at most 1048576 bytes unpacked"):
        declared(path, "idx").inspect(path)
    volume = nibabel.Nifti1Image(np.zeros((128, 128, 128), np.uint8), np.eye(4)).to_bytes()
    path.write_bytes(gzip.compress(volume))
    with pytest.raises(InvalidParameter, match="at most 1048576 bytes unpacked"):
        declared(path, "nifti").inspect(path)


def test_what_follows_an_idx_array_is_refused_however_long_it_is(path: Path) -> None:
    path.write_bytes(gzip.compress(struct.pack(">4B1I", 0, 0, 0x08, 1, 10) + bytes(2**22)))
    with pytest.raises(InvalidParameter, match="more bytes than its header says"):
        declared(path, "idx").inspect(path)


def test_recordings_of_different_lengths_or_rates_are_refused(path: Path) -> None:
    wav_zip(path, recording(8), recording(9))
    with pytest.raises(InvalidParameter, match="recordings of 8 and of 9 samples"):
        declared(path, "wav_zip").inspect(path)
    wav_zip(path, recording(8), recording(8, rate=16_000))
    with pytest.raises(InvalidParameter, match="8000 samples per second"):
        declared(path, "wav_zip").inspect(path)


@pytest.mark.parametrize("link", [h5py.SoftLink("/y"), h5py.ExternalLink("/etc/passwd", "/x"), h5py.SoftLink("/nowhere")])
def test_links_in_an_hdf5_file_are_refused(path: Path, link: object) -> None:
    hdf5_file(path)
    with h5py.File(path, "a") as file:
        file["scan/link"] = link
    with pytest.raises(InvalidParameter, match="without soft and external links"):
        declared(path, "hdf5").inspect(path)


def test_a_group_that_holds_itself_is_refused(path: Path) -> None:
    hdf5_file(path)
    with h5py.File(path, "a") as file:
        file["scan/again"] = file["scan"]
    with pytest.raises(InvalidParameter, match="contains itself or occurs twice"):
        declared(path, "hdf5").inspect(path)


def test_data_outside_the_hdf5_file_are_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(64))
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (8,), "f8", external=[(str(tmp_path / "secret"), 0, 64)])
    with pytest.raises(InvalidParameter, match="external or virtual storage of x"):
        declared(path, "hdf5").inspect(path)
    layout = h5py.VirtualLayout((8,), "f8")
    layout[:] = h5py.VirtualSource(str(tmp_path / "secret"), "x", (8,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)
    with pytest.raises(InvalidParameter, match="external or virtual storage of x"):
        declared(path, "hdf5").inspect(path)


def test_other_filters_of_an_hdf5_file_are_refused(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(64), chunks=(64,), scaleoffset=0)
    with pytest.raises(InvalidParameter, match="compressed by gzip, shuffle, fletcher32, lzf or not at all"):
        declared(path, "hdf5").inspect(path)


def test_an_hdf5_shape_with_nothing_stored_behind_it_is_refused(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (2**20, 64), "f4", chunks=(1024, 64))
    with pytest.raises(InvalidParameter, match="less data stored for x than its shape says"):
        declared(path, "hdf5").inspect(path)


def test_what_isnt_numbers_in_hdf5_and_matlab_files_is_left_out_by_name(path: Path) -> None:
    hdf5_file(path)
    assert declared(path, "hdf5").inspect(path).left_out == ("words",)
    mat(path)
    assert declared(path, "mat").inspect(path).left_out == ("c",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b\n1,2\n3\n", "a row of 1 cells in a table of 2 columns"),
        ("a,a\n1,2\n", "1 distinct names"),
        ("1,2\n3,4\n", "a first line of numbers"),
        ("a,b\n", "no row"),
        ('a,b\n1,"2\n', "a table that can't be read"),
        ("a,\n1,2\n", "a column without a name"),
    ],
)
def test_a_table_that_is_none_is_refused_without_quoting_it(path: Path, text: str, told: str) -> None:
    path.write_text(text)
    with pytest.raises(InvalidParameter, match=told):
        declared(path, "csv").inspect(path)


def test_a_table_that_is_not_utf_8_is_refused_without_quoting_it(path: Path) -> None:
    path.write_bytes(b"a,b\n" + b"1,2\n" * 400 + b"s\xe9cret,2\n")
    with pytest.raises(InvalidParameter) as refused:
        declared(path, "csv").inspect(path)
    assert "cret" not in str(refused.value)


def test_an_array_that_isnt_there_is_named_with_those_that_are(path: Path) -> None:
    npz(path)
    with pytest.raises(InvalidParameter, match=r"array must be one of x, y, got 'z'"):
        FORMATS["npz"].arrays(path, ["z"])


def test_hdf5_is_walked_no_deeper_than_a_limit(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["/".join("g" * (hdf5.DEEPEST + 3)) + "/x"] = np.zeros(3)
    with pytest.raises(InvalidParameter, match="deep"):
        declared(path, "hdf5").inspect(path)
