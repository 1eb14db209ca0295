// Holds the precompiled headers; see the top CMakeLists.txt.
