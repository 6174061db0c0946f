#pragma once

// What SINEW_METHOD, SINEW_SERVICE and SINEW_STRUCT do for each name of a list.
//
// SINEW_INTERNAL_FOR_EACH(macro, context, head, name...) is macro(context, name) for each name, up
// to 64 of them, or none: the head is left out, so that there is always an argument. C++17 has no
// __VA_OPT__; therefore the chain below, each link of which does one name.

#define SINEW_INTERNAL_CAT(a, b) SINEW_INTERNAL_CAT_(a, b)
#define SINEW_INTERNAL_CAT_(a, b) a##b
#define SINEW_INTERNAL_TEXT(...) SINEW_INTERNAL_TEXT_(__VA_ARGS__)
#define SINEW_INTERNAL_TEXT_(...) #__VA_ARGS__
/// The first of at least one; call it with a comma behind the last.
#define SINEW_INTERNAL_HEAD(head, ...) head

#define SINEW_INTERNAL_FOR_EACH(macro, context, ...)                         \
  SINEW_INTERNAL_CAT(SINEW_INTERNAL_EACH_, SINEW_INTERNAL_LEFT(__VA_ARGS__)) \
  (macro, context, __VA_ARGS__, )

/// 1 if the argument is in parentheses, otherwise 0.
#define SINEW_INTERNAL_IS_LIST(argument) \
  SINEW_INTERNAL_SECOND(SINEW_INTERNAL_IS_LIST_ argument, 0, )
#define SINEW_INTERNAL_IS_LIST_(...) ~, 1
#define SINEW_INTERNAL_SECOND(...) SINEW_INTERNAL_SECOND_(__VA_ARGS__)
#define SINEW_INTERNAL_SECOND_(first, second, ...) second

// How many arguments there are besides the first; MANY: more than 64.
#define SINEW_INTERNAL_LEFT(...)                                                                  \
  SINEW_INTERNAL_AT_128(__VA_ARGS__, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY,  \
                        MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY,   \
                        MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY,   \
                        MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY,   \
                        MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY, MANY,   \
                        MANY, MANY, MANY, MANY, MANY, 64, 63, 62, 61, 60, 59, 58, 57, 56, 55, 54, \
                        53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, 41, 40, 39, 38, 37, 36,   \
                        35, 34, 33, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18,   \
                        17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, )
#define SINEW_INTERNAL_AT_128(                                                                     \
    a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, \
    a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37, a38, a39, \
    a40, a41, a42, a43, a44, a45, a46, a47, a48, a49, a50, a51, a52, a53, a54, a55, a56, a57, a58, \
    a59, a60, a61, a62, a63, a64, a65, a66, a67, a68, a69, a70, a71, a72, a73, a74, a75, a76, a77, \
    a78, a79, a80, a81, a82, a83, a84, a85, a86, a87, a88, a89, a90, a91, a92, a93, a94, a95, a96, \
    a97, a98, a99, a100, a101, a102, a103, a104, a105, a106, a107, a108, a109, a110, a111, a112,   \
    a113, a114, a115, a116, a117, a118, a119, a120, a121, a122, a123, a124, a125, a126, a127,      \
    found, ...)                                                                                    \
  found

#define SINEW_INTERNAL_EACH_MANY(macro, context, ...) \
  static_assert(false, "Sinew: a list of names has at most 64")
#define SINEW_INTERNAL_EACH_0(m, c, ...)
#define SINEW_INTERNAL_EACH_1(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_0(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_2(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_1(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_3(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_2(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_4(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_3(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_5(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_4(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_6(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_5(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_7(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_6(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_8(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_7(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_9(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_8(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_10(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_9(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_11(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_10(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_12(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_11(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_13(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_12(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_14(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_13(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_15(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_14(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_16(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_15(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_17(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_16(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_18(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_17(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_19(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_18(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_20(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_19(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_21(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_20(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_22(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_21(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_23(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_22(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_24(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_23(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_25(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_24(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_26(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_25(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_27(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_26(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_28(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_27(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_29(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_28(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_30(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_29(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_31(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_30(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_32(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_31(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_33(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_32(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_34(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_33(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_35(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_34(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_36(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_35(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_37(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_36(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_38(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_37(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_39(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_38(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_40(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_39(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_41(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_40(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_42(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_41(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_43(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_42(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_44(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_43(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_45(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_44(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_46(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_45(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_47(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_46(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_48(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_47(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_49(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_48(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_50(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_49(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_51(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_50(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_52(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_51(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_53(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_52(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_54(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_53(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_55(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_54(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_56(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_55(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_57(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_56(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_58(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_57(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_59(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_58(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_60(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_59(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_61(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_60(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_62(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_61(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_63(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_62(m, c, next, __VA_ARGS__)
#define SINEW_INTERNAL_EACH_64(m, c, done, next, ...) \
  m(c, next) SINEW_INTERNAL_EACH_63(m, c, next, __VA_ARGS__)
