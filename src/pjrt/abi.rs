//! The conventions of the C API that every call shares: sized argument structs and errors.

use super::sys;

/// A struct of the C API whose first field says how large its caller knows it to be. That is how
/// a plugin tells which fields an older or a newer caller has filled.
pub(super) trait SizedStruct: Default {
    /// The size to declare: up to the end of the last field in the header we were generated from.
    const STRUCT_SIZE: usize;

    /// All fields zero (null, absent), except for the size.
    fn sized() -> Self;
}

macro_rules! sized_structs {
    ($($name:ident: $size:ident,)*) => {$(
        impl SizedStruct for sys::$name {
            const STRUCT_SIZE: usize = sys::$size as usize;

            #[inline]
            fn sized() -> Self {
                Self { struct_size: Self::STRUCT_SIZE, ..Default::default() }
            }
        }
    )*};
}

sized_structs! {
    PJRT_Buffer_Delete_Args: PJRT_Buffer_Delete_Args_STRUCT_SIZE,
    PJRT_Buffer_Destroy_Args: PJRT_Buffer_Destroy_Args_STRUCT_SIZE,
    PJRT_Buffer_Dimensions_Args: PJRT_Buffer_Dimensions_Args_STRUCT_SIZE,
    PJRT_Buffer_ElementType_Args: PJRT_Buffer_ElementType_Args_STRUCT_SIZE,
    PJRT_Buffer_GetMemoryLayout_Args: PJRT_Buffer_GetMemoryLayout_Args_STRUCT_SIZE,
    PJRT_Buffer_IsDeleted_Args: PJRT_Buffer_IsDeleted_Args_STRUCT_SIZE,
    PJRT_Buffer_MemoryLayout: PJRT_Buffer_MemoryLayout_STRUCT_SIZE,
    PJRT_Buffer_MemoryLayout_Tiled: PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE,
    PJRT_Buffer_OnDeviceSizeInBytes_Args: PJRT_Buffer_OnDeviceSizeInBytes_Args_STRUCT_SIZE,
    PJRT_Buffer_ReadyEvent_Args: PJRT_Buffer_ReadyEvent_Args_STRUCT_SIZE,
    PJRT_Buffer_ToHostBuffer_Args: PJRT_Buffer_ToHostBuffer_Args_STRUCT_SIZE,
    PJRT_Buffer_UnsafePointer_Args: PJRT_Buffer_UnsafePointer_Args_STRUCT_SIZE,
    PJRT_Client_AddressableDevices_Args: PJRT_Client_AddressableDevices_Args_STRUCT_SIZE,
    PJRT_Client_BufferFromHostBuffer_Args: PJRT_Client_BufferFromHostBuffer_Args_STRUCT_SIZE,
    PJRT_Client_Compile_Args: PJRT_Client_Compile_Args_STRUCT_SIZE,
    PJRT_Client_Create_Args: PJRT_Client_Create_Args_STRUCT_SIZE,
    PJRT_Client_Destroy_Args: PJRT_Client_Destroy_Args_STRUCT_SIZE,
    PJRT_Client_PlatformName_Args: PJRT_Client_PlatformName_Args_STRUCT_SIZE,
    PJRT_Client_PlatformVersion_Args: PJRT_Client_PlatformVersion_Args_STRUCT_SIZE,
    PJRT_Device_GetDescription_Args: PJRT_Device_GetDescription_Args_STRUCT_SIZE,
    PJRT_Device_MemoryStats_Args: PJRT_Device_MemoryStats_Args_STRUCT_SIZE,
    PJRT_DeviceDescription_Id_Args: PJRT_DeviceDescription_Id_Args_STRUCT_SIZE,
    PJRT_DeviceDescription_Kind_Args: PJRT_DeviceDescription_Kind_Args_STRUCT_SIZE,
    PJRT_DeviceDescription_ToString_Args: PJRT_DeviceDescription_ToString_Args_STRUCT_SIZE,
    PJRT_Error_Destroy_Args: PJRT_Error_Destroy_Args_STRUCT_SIZE,
    PJRT_Error_GetCode_Args: PJRT_Error_GetCode_Args_STRUCT_SIZE,
    PJRT_Error_Message_Args: PJRT_Error_Message_Args_STRUCT_SIZE,
    PJRT_Event_Await_Args: PJRT_Event_Await_Args_STRUCT_SIZE,
    PJRT_Event_Destroy_Args: PJRT_Event_Destroy_Args_STRUCT_SIZE,
    PJRT_Event_IsReady_Args: PJRT_Event_IsReady_Args_STRUCT_SIZE,
    PJRT_ExecuteOptions: PJRT_ExecuteOptions_STRUCT_SIZE,
    PJRT_Executable_DeserializeAndLoad_Args: PJRT_Executable_DeserializeAndLoad_Args_STRUCT_SIZE,
    PJRT_Executable_Destroy_Args: PJRT_Executable_Destroy_Args_STRUCT_SIZE,
    PJRT_Executable_GetCompiledMemoryStats_Args:
        PJRT_Executable_GetCompiledMemoryStats_Args_STRUCT_SIZE,
    PJRT_Executable_Name_Args: PJRT_Executable_Name_Args_STRUCT_SIZE,
    PJRT_Executable_NumOutputs_Args: PJRT_Executable_NumOutputs_Args_STRUCT_SIZE,
    PJRT_Executable_Serialize_Args: PJRT_Executable_Serialize_Args_STRUCT_SIZE,
    PJRT_LoadedExecutable_Destroy_Args: PJRT_LoadedExecutable_Destroy_Args_STRUCT_SIZE,
    PJRT_LoadedExecutable_Execute_Args: PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE,
    PJRT_LoadedExecutable_GetExecutable_Args: PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE,
    PJRT_NamedValue: PJRT_NamedValue_STRUCT_SIZE,
    PJRT_Plugin_Initialize_Args: PJRT_Plugin_Initialize_Args_STRUCT_SIZE,
    PJRT_Program: PJRT_Program_STRUCT_SIZE,
}

/// Calls a function of the plugin's table by its name in the C API and turns its error, or the
/// function's absence from an older plugin, into our [`Error`](super::Error). Calling it is
/// `unsafe`: the arguments must be what the C API says of that function.
macro_rules! call {
    ($plugin:expr, $function:ident, $args:expr) => {{
        let plugin: &$crate::pjrt::plugin::Plugin = $plugin;
        match plugin.api().$function {
            Some(function) => plugin.check(stringify!($function), function($args)),
            None => Err(plugin.missing(stringify!($function))),
        }
    }};
}
pub(super) use call;

/// A copy of text that the plugin owns. Bytes that are not UTF-8 are replaced.
///
/// # Safety
/// `data` must be null or point to `size` readable bytes.
pub(super) unsafe fn text(data: *const std::ffi::c_char, size: usize) -> String {
    if data.is_null() || size == 0 {
        return String::new();
    }
    // SAFETY: `data` is not null, and the caller vouches for `size` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) };
    String::from_utf8_lossy(bytes).into_owned()
}

/// A slice that the plugin owns. A null pointer is an empty slice.
///
/// # Safety
/// `data` must be null or point to `len` values that live and stay unchanged for `'a`.
pub(super) unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: `data` is not null, and the caller vouches for the rest.
    unsafe { std::slice::from_raw_parts(data, len) }
}
