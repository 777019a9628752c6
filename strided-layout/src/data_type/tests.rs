use super::names::NATIVE;
use super::*;
use proptest::prelude::*;

#[test]
fn the_names_are_numpys_and_ml_dtypes() {
    let named = [
        (DataType::INT8, "int8"),
        (DataType::UINT64, "uint64"),
        (DataType::FLOAT16, "float16"),
        (DataType::BFLOAT16, "bfloat16"),
        (DataType::COMPLEX128, "complex128"),
        (DataType::BOOL, "bool"),
        (DataType::FLOAT8_E4M3FN, "float8_e4m3fn"),
        (DataType::FLOAT8_E4M3B11FNUZ, "float8_e4m3b11fnuz"),
        (DataType::FLOAT8_E5M2, "float8_e5m2"),
        (DataType::FLOAT6_E3M2FN, "float6_e3m2fn"),
        (DataType::FLOAT4_E2M1FN, "float4_e2m1fn"),
        (DataType::INT4, "int4"),
        (DataType::UINT1, "uint1"),
        (DataType::FLOAT32.with_lanes(4).unwrap(), "float32x4"),
        (DataType::opaque(5).unwrap(), "opaque8x5"),
    ];
    for (data_type, name) in named {
        assert_eq!(data_type.to_string(), name);
        assert_eq!(name.parse(), Ok(data_type));
    }
}

#[test]
fn what_is_no_name_is_refused() {
    for text in ["", "x", "float", "float33", "float032", "float32x0", "float32x1", "float32x", "bool8", "int 8", "f4"]
    {
        assert!(text.parse::<DataType>().is_err(), "{text}");
    }
    let error = "float33".parse::<DataType>().unwrap_err();
    assert_eq!(error, DataTypeError::Bits { code: TypeCode::Float, bits: 33 });
    let error = "é".repeat(500).parse::<DataType>().unwrap_err();
    assert!(error.to_string().chars().count() < 150);
}

#[test]
fn odd_numbers_are_refused_by_name() {
    assert_eq!(DataType::new(18, 8, 1), Err(DataTypeError::UnknownCode { code: 18 }));
    for (code, bits) in [(0, 0), (0, 3), (1, 12), (2, 8), (2, 80), (3, 7), (4, 32), (5, 16), (6, 1), (10, 16), (17, 8)]
    {
        let known = TypeCode::from_number(code).unwrap();
        assert_eq!(DataType::new(code, bits, 1), Err(DataTypeError::Bits { code: known, bits }));
    }
    assert_eq!(DataType::new(2, 32, 0), Err(DataTypeError::NoLanes { code: TypeCode::Float }));
    assert_eq!(DataType::opaque(0), Err(DataTypeError::OpaqueSize { bytes: 0 }));
    assert_eq!(DataType::opaque(65536), Err(DataTypeError::OpaqueSize { bytes: 65536 }));
}

#[test]
fn the_numbers_of_the_codes_are_their_places() {
    for (number, code) in TypeCode::ALL.into_iter().enumerate() {
        assert_eq!(code as usize, number);
        assert_eq!(TypeCode::from_number(number as u8), Some(code));
    }
    assert_eq!(TypeCode::from_number(18), None);
}

#[test]
fn sizes_of_elements_that_share_bytes() {
    assert_eq!(DataType::FLOAT4_E2M1FN.size(), None);
    assert_eq!(DataType::FLOAT4_E2M1FN.padded_size(), 1);
    assert_eq!(DataType::FLOAT4_E2M1FN.with_lanes(2).unwrap().size(), Some(1));
    assert_eq!(DataType::FLOAT6_E2M3FN.packed_size(3), Some(3)); // 18 bits
    assert_eq!(DataType::UINT1.packed_size(9), Some(2));
    assert_eq!(DataType::UINT1.packed_size(usize::MAX), Some(usize::MAX / 8 + 1));
    assert_eq!(DataType::FLOAT32.packed_size(usize::MAX), None);
    assert_eq!(DataType::COMPLEX128.size(), Some(16));
    assert!(DataType::INT4.is_sub_byte() && !DataType::BOOL.is_sub_byte());
}

#[test]
fn typestrs_are_numpys() {
    let native = |text: &str| text.replace('<', &NATIVE.to_string());
    for (data_type, text) in [
        (DataType::FLOAT32, "<f4"),
        (DataType::INT8, "|i1"),
        (DataType::BOOL, "|b1"),
        (DataType::COMPLEX64, "<c8"),
        (DataType::UINT16, "<u2"),
        (DataType::opaque(16).unwrap(), "|V16"),
    ] {
        assert_eq!(data_type.typestr(), Ok(native(text)));
        assert_eq!(DataType::from_typestr(&native(text)), Ok(data_type));
    }
    for data_type in [DataType::BFLOAT16, DataType::FLOAT8_E5M2, DataType::INT4, DataType::COMPLEX32] {
        assert_eq!(data_type.typestr(), Err(DataTypeError::NoTypestr { data_type }));
    }
    let other = if NATIVE == '<' { ">f4" } else { "<f4" };
    assert!(matches!(DataType::from_typestr(other), Err(DataTypeError::ByteOrder { .. })));
    for text in [
        "",
        "<",
        "<f",
        "f4",
        "<M8",
        "|O8",
        "<U4",
        "<f16",
        "<u16",
        "|u16",
        "<i16",
        "<c4",
        "<c32",
        "<f04",
        "<f-4",
        "<i3",
        "<f99999999999999999999",
    ] {
        assert!(matches!(DataType::from_typestr(text), Err(DataTypeError::Typestr { .. })), "{text}");
    }
    assert_eq!(DataType::from_typestr(">i1"), Ok(DataType::INT8)); // a single byte has no order
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn typestrs_are_read_only_if_they_are_written(order in 0..4usize, letter in 0..26u8, upper: bool, size in 0..1000u32) {
        let letter = char::from(letter + if upper { b'A' } else { b'a' });
        let text = format!("{}{letter}{size}", ["<", "|", "=", ">"][order]);
        if let Ok(data_type) = DataType::from_typestr(&text) {
            let written = data_type.typestr();
            prop_assert!(written.is_ok(), "{text}: {written:?}");
            prop_assert_eq!(DataType::from_typestr(&written.unwrap_or_default()), Ok(data_type));
        }
    }

    #[test]
    fn every_type_that_can_be_is_read_as_it_is_written(code: u8, bits: u8, lanes: u16) {
        if let Ok(data_type) = DataType::new(code % 20, bits, lanes) {
            prop_assert_eq!(data_type.to_string().parse(), Ok(data_type));
            let (packed, elements) = (data_type.packed_size(100), 100 * data_type.element_bits());
            prop_assert_eq!(packed, Some(elements.div_ceil(8)));
        }
    }

    #[test]
    fn no_text_is_read_with_a_panic(text in "\\PC{0,12}") {
        let _ = text.parse::<DataType>();
        if let Ok(data_type) = DataType::from_typestr(&text) {
            prop_assert!(data_type.size().is_some());
        }
    }
}
